"""``perftool.profile`` records, saves and reports, and never disturbs the code in its block."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stores import steps_in  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import perftool  # noqa: E402
from perftool.errors import PerfToolError  # noqa: E402
from perftool.integrations import recording  # noqa: E402
from perftool.integrations.process import new_trace  # noqa: E402
from perftool.integrations.recording import Recording  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def work(recording: Recording | None, steps: int, then: type[BaseException] | None = None) -> None:
    for _ in range(steps):
        # The last step of the recording begins at the end of the loop and is short. The steps of the loop must be much
        # longer.
        torch.ones(512, 512) @ torch.ones(512, 512)
        if recording:
            recording.step()
    if then:
        torch.ones(2).sum()
        raise then


def steps_of(prof: Recording) -> list[tuple[str, bool]]:
    """The steps of the newest trace, and whether each is partial. A report would take much longer."""
    return [(step["name"], step["partial"]) for step in steps_in(prof.traces[-1])]


@pytest.mark.parametrize(
    ("options", "steps", "recorded"),
    [
        ({}, 9, [(n, False) for n in (2, 3, 4, 5, 6)]),
        ({}, 3, [(2, False), (3, True)]),
        ({"wait": 0, "warmup": 0, "active": 2}, 5, [(0, False), (1, False)]),
        ({"wait": 0, "warmup": 1, "active": 1}, 5, [(1, False)]),
        ({"wait": 2, "warmup": 0, "active": 1}, 5, [(2, False)]),
    ],
)
def test_the_active_steps_are_recorded(
    tmp_path: Path, options: dict[str, int], steps: int, recorded: list[tuple[int, bool]]
) -> None:
    with perftool.profile(tmp_path / "runs", quiet=True, **options) as prof:
        work(prof, steps)

    assert [path.parent for path in prof.traces] == [tmp_path / "runs"]
    assert steps_of(prof) == [(f"ProfilerStep#{number}", partial) for number, partial in recorded]


def test_a_block_without_steps_is_recorded_completely(tmp_path: Path) -> None:
    with perftool.profile(tmp_path, quiet=True) as prof:
        work(None, 3)

    assert [step.name for step in prof.report.steps] == ["ProfilerStep#0"]
    assert {op.name: op.count for op in prof.report.top_ops}["aten::ones"] == 6


def test_the_report_is_printed_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with perftool.profile(tmp_path) as prof:
        work(prof, 5)

    out = capsys.readouterr().out
    assert "--full prints all tables" in out
    assert out.splitlines()[-1] == f"The trace: {prof.traces[0]}"


def test_repeated_recordings_keep_every_trace(tmp_path: Path) -> None:
    with perftool.profile(tmp_path, wait=0, warmup=1, active=1, repeat=2, quiet=True) as prof:
        work(prof, 6)

    assert sorted(tmp_path.iterdir()) == sorted(prof.traces)
    assert len(prof.traces) == 2
    # The report is on the newest trace, and so is an analysis of the folder.
    assert [step.name for step in prof.report.steps] == ["ProfilerStep#3"]
    assert [step.name for step in perftool.analyze(tmp_path, rules=[]).steps] == ["ProfilerStep#3"]


def test_an_exception_in_the_block_passes_and_the_recording_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), perftool.profile(tmp_path) as prof:
        work(prof, 3, then=ZeroDivisionError)

    assert [name for name, _ in steps_of(prof)] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("error")
def test_a_block_that_ends_early_by_an_exception_gets_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), perftool.profile(tmp_path) as prof:
        work(prof, 1, then=KeyboardInterrupt)

    assert prof.traces == []
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_does_not_end_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with perftool.profile(tmp_path / "gone", quiet=True, wait=0, active=2) as prof:
        (tmp_path / "gone").rmdir()
        work(prof, 3)

    assert f"{tmp_path / 'gone'} no longer exists; the trace goes to {prof.traces[0].parent}" in capsys.readouterr().err
    shutil.rmtree(prof.traces[0].parent)


def test_too_few_steps_give_a_warning(tmp_path: Path) -> None:
    sentence = r"called step\(\) 2 times, but recording starts after 2"
    with pytest.warns(UserWarning, match=sentence), perftool.profile(tmp_path) as prof:
        work(prof, 2)

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PerfToolError, match="nothing was recorded"):
        _ = prof.report


def test_a_failure_while_saving_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no room anywhere")

    monkeypatch.setattr(recording, "save_trace", full)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with perftool.profile(tmp_path / "runs", quiet=True) as prof:
            work(prof, 3)

    assert [str(warning.message).split("(")[0] for warning in heard if "perftool" in str(warning.message)] == [
        "perftool: the recording could not be saved "
    ]
    assert prof.traces == []


def test_profiles_one_after_the_other_do_not_disturb_each_other(tmp_path: Path) -> None:
    with perftool.profile(tmp_path / "a", quiet=True) as first:
        work(first, 8)
    with perftool.profile(tmp_path / "b", quiet=True) as second:
        work(second, 8)

    assert len(steps_of(first)) == len(steps_of(second)) == 5


@pytest.mark.parametrize(
    ("folder", "options", "sentence"),
    [
        ("run.json", {}, "profile needs a folder"),
        ("runs", {"active": 0}, "active >= 1"),
        ("runs", {"wait": -1}, "wait, warmup and repeat >= 0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    tmp_path: Path, folder: str, options: dict[str, int], sentence: str
) -> None:
    with pytest.raises(PerfToolError, match=sentence):
        perftool.profile(tmp_path / folder, **options)


def test_an_unwritable_folder_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PerfToolError, match="cannot create the folder"), perftool.profile(tmp_path / "file" / "runs"):
        pytest.fail("the block was entered")


@pytest.mark.parametrize("variable", ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
def test_files_name_the_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "3")
    assert new_trace(tmp_path).name.startswith("rank3.")
    assert new_trace(tmp_path, "fit").name.startswith("fit-rank3.")


def test_ranks_are_analysed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with perftool.profile(tmp_path, quiet=True) as prof:
            work(prof, 6)

    assert [read.rank for read in perftool.analyze(tmp_path, rules=[]).inputs] == [0, 1]


def test_without_torch_the_extra_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport perftool\nperftool.profile"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "recording needs PyTorch; the extra `bench` installs it" in done.stderr.splitlines()[-1]


def test_a_recording_that_the_programs_own_profiler_ended_is_not_saved(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="another profiler ended the recording|nothing was recorded"),
        perftool.profile(tmp_path, quiet=True),
        torch.profiler.profile(),
    ):
        torch.ones(2) + 1
    assert list(tmp_path.iterdir()) == []


def test_the_modes_of_the_program_see_no_marks_of_steps(tmp_path: Path) -> None:
    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    with Ops(), perftool.profile(tmp_path, wait=0, warmup=1, active=2, quiet=True) as recording:
        for _ in range(4):
            torch.ones(2).add(1)
            recording.step()
    assert set(seen) == {"aten.ones.default", "aten.add.Tensor"}
