"""HPUProfiler in a real Trainer, for each package that contains Lightning."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import perftool  # noqa: E402
from perftool.errors import PerfToolError  # noqa: E402
from perftool.integrations import lightning as ours  # noqa: E402
from perftool.integrations import process  # noqa: E402


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, as if it were the only one that the script imports."""
    found = pytest.importorskip(request.param)
    monkeypatch.setattr(ours, "_HOMES", (f"{request.param}.profilers",))
    return found


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)


def fit(package: Any, folder: Path, profiler: ours.HPUProfiler, batches: int = 10) -> Any:
    class Model(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            with profiler.profile("my_custom_action"):
                doubled = batch * 2
            profiler.start("half")
            doubled = doubled / 2
            profiler.stop("half")
            return self.layer(doubled).sum()

        def validation_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.ones(batches, 4))
    trainer = package.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, default_root_dir=folder, logger=False, profiler=profiler,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), data, data)
    return trainer


def test_a_fit_leaves_a_trace_with_steps_and_findings(
    package: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiler = ours.HPUProfiler()

    fit(package, tmp_path, profiler)

    assert isinstance(profiler, package.profilers.PyTorchProfiler)
    assert isinstance(profiler, ours.HPUProfiler)
    assert {path.parent for path in profiler.traces} == {tmp_path}
    assert "--full prints all tables" in capsys.readouterr().out
    training = next(path for path in profiler.traces if path.name.startswith("fit-training_step-"))
    with perftool.open_trace(training) as store:
        names = set(store.frame("slices")["name"])
    assert {"[pl][profile]my_custom_action", "[pl][profile]half"} <= names
    steps = perftool.analyze(training, rules=[]).steps
    assert [step.name for step in steps] == [f"ProfilerStep#{number}" for number in (2, 3, 4, 5, 6)]


def test_lightning_still_requeues_a_job_that_slurm_ends(package: Any, tmp_path: Path) -> None:
    profiler = ours.HPUProfiler(dirpath=tmp_path, report=False)
    profiler.start("setup")
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    profiler.stop("setup")


def test_a_trace_is_written_where_the_run_began(package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    profiler = ours.HPUProfiler(dirpath="here", report=False)
    monkeypatch.chdir(tmp_path / "work")
    fit(package, tmp_path, profiler)
    assert profiler.traces
    assert {path.parent for path in profiler.traces} == {tmp_path / "here"}


def test_the_training_is_analysed_if_the_folder_also_has_a_validation(package: Any, tmp_path: Path) -> None:
    profiler = ours.HPUProfiler(dirpath=tmp_path / "logs", filename="perf-logs", report=False)

    fit(package, tmp_path, profiler)

    assert {path.name.split("_step")[0] for path in profiler.traces} == {
        "fit-perf-logs-training", "fit-perf-logs-validation",
    }  # fmt: skip
    (read,) = perftool.analyze(tmp_path / "logs", rules=[]).inputs
    assert Path(read.path).name.startswith("fit-perf-logs-training_step-")


def test_each_rank_has_a_file(package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    for rank in (0, 1):
        profiler = ours.HPUProfiler(dirpath=tmp_path / "logs", filename="perf-logs", report=False)
        with monkeypatch.context() as patch:
            # RANK stays unset, because a Trainer that finds it would wait for the other rank.
            patch.setattr(process, "rank_here", lambda rank=rank: rank)
            fit(package, tmp_path, profiler)
        traces += profiler.traces

    assert [read.rank for read in perftool.analyze(tmp_path / "logs", rules=[]).inputs] == [0, 1]


def test_a_short_run_is_recorded_completely(package: Any, tmp_path: Path) -> None:
    profiler = ours.HPUProfiler(report=False)

    fit(package, tmp_path, profiler, batches=2)

    assert profiler.report.steps


def test_unsupported_features_are_refused_with_a_message(package: Any, tmp_path: Path) -> None:
    profiler = ours.HPUProfiler(dirpath=tmp_path)

    with pytest.raises(PerfToolError, match=r"summary\(\) is not supported"):
        profiler.summary()
    with pytest.raises(PerfToolError, match="nothing has been recorded"):
        _ = profiler.report


def test_the_package_that_the_script_imports_is_used() -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("pytorch_lightning")
    for package in ("lightning.pytorch", "pytorch_lightning"):
        code = (
            f"import {package} as package\nfrom perftool.integrations.lightning import HPUProfiler\n"
            "print(isinstance(HPUProfiler(), package.profilers.Profiler))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"


def test_without_lightning_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "pytorch_lightning"):
        for module in [loaded for loaded in sys.modules if loaded.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)
    importlib.invalidate_caches()

    with pytest.raises(PerfToolError, match="the extra `lightning` installs it"):
        ours.HPUProfiler()
