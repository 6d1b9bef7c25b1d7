"""The callback in a real Trainer, with a tiny model with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import perftool  # noqa: E402
from perftool.errors import PerfToolError  # noqa: E402
from perftool.integrations.huggingface import ProfileCallback  # noqa: E402


class Tokens(torch.utils.data.Dataset[dict[str, Any]]):
    """``count`` identical rows of tokens. Reading the row ``broken`` fails."""

    def __init__(self, count: int, broken: int | None = None) -> None:
        self.count = count
        self.broken = broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> dict[str, Any]:
        if at == self.broken:
            raise OSError("disk")
        tokens = torch.arange(8)
        return {"input_ids": tokens, "labels": tokens}


def trainer(folder: Path, data: Tokens, callback: ProfileCallback) -> Any:
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), max_steps=6, per_device_train_batch_size=2, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    return transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback])


def test_a_training_is_recorded_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = ProfileCallback(tmp_path / "hpu_profile")

    trainer(tmp_path, Tokens(32), callback).train()

    assert [step.name for step in callback.report.steps] == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5, 6)]
    assert "--full prints all tables" in capsys.readouterr().out
    assert perftool.analyze(tmp_path / "hpu_profile", rules=[]).steps == callback.report.steps


def test_an_exception_of_the_training_is_unchanged(tmp_path: Path) -> None:
    callback = ProfileCallback(tmp_path / "hpu_profile", wait=0, warmup=0, active=50, quiet=True)
    run = trainer(tmp_path, Tokens(12, broken=11), callback)

    # Rows are drawn in random order. 6 steps of 2 rows draw all 12 of them, including the broken one.
    with pytest.raises(OSError, match="disk"):
        run.train()
    callback._recording.close()

    assert callback.report.steps[0].name == "ProfilerStep#0"


def test_wrong_options_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(PerfToolError, match="active >= 1"):
        ProfileCallback(tmp_path, active=0)


def test_before_a_training_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(PerfToolError, match="training has not started"):
        _ = ProfileCallback(tmp_path).report
