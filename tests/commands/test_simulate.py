"""``simulate`` prints the script's output first and its own output afterwards or to stderr, and exits with the script's
code.

Most tests run in this process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders.program import Run

pytest.importorskip("torch")

SCRIPT = """
import sys
import torch

print("from the script", sys.argv[1:])
x = torch.ones(4, device="hpu").sum().item()
sys.exit(3)
"""


def in_a_process(source: str, *arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    Path("script.py").write_text(source)
    code = f"import sys; {before}; from perftool.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def simulate(run: Run, source: str, *arguments: str) -> int:
    Path("script.py").write_text(source)
    return run("simulate", "script.py", *arguments)


def test_report_and_exit_code(run: Run) -> None:
    assert simulate(run, SCRIPT, "--device", "gaudi3", "--", "--device", "none") == 3
    assert run.out.startswith("from the script ['--device', 'none']\nscript.simulated.json.gz   GAUDI3   ")
    assert "\nNot a measurement. Simulated, not recorded on a device.\n" in run.out
    assert run.err.splitlines()[-4:] == [
        "Wrote script.simulated.json.gz, script.simulated.log, script.simulated.metrics.json",
        "habana_perf_tool: the script ended with exit code 3; the trace ends there",
        "habana_perf_tool: lines that end a graph, read a value or cause a recompilation, in the whole run:",
        "  script.py:6 <module>: 1 x read, a value on the host",
    ]


def test_without_a_report_only_the_files_are_written(run: Run) -> None:
    simulate(run, SCRIPT, "--no-report", "--quiet", "-o", "out/run.json", "--epochs", "2")
    assert (run.out, run.err) == ("from the script ['--epochs', '2']\n", "")
    assert sorted(path.name for path in Path("out").iterdir()) == ["run.json", "run.log", "run.metrics.json"]


def test_a_script_without_the_device(run: Run) -> None:
    assert simulate(run, "print('done')") == 0
    assert run.out == "done\n"
    assert run.err == ("habana_perf_tool: the script put no tensor on the device 'hpu', so there is no report\n")


@pytest.mark.parametrize(("name", "said"), [("none.py", "no such file"), (".", "a folder, not a script")])
def test_an_invalid_script_is_reported(run: Run, name: str, said: str) -> None:
    assert run("simulate", name) == 2
    assert (run.out, run.err) == ("", f"habana_perf_tool: {name}: {said}\n")


def test_a_missing_torch_gives_one_sentence() -> None:
    done = in_a_process(SCRIPT, "script.py", before="sys.modules['torch'] = None")
    sentence = "simulate needs PyTorch; the extra `bench` installs it: pip install 'habana-perf-tool[bench]'."
    assert (done.returncode, done.stderr) == (2, f"habana_perf_tool: {sentence}\n")


def test_messages_name_files_as_the_user_typed_them(run: Run) -> None:
    simulate(run, SCRIPT, "-o", "out/run.json")
    assert "from the script []\nrun.json   " in run.out
    assert "Wrote out/run.json, out/run.log, out/run.metrics.json\n" in run.err


def test_an_unwritable_place_is_reported_before_the_script_runs(run: Run, tmp_path: Path) -> None:
    Path("taken").mkdir()
    assert simulate(run, SCRIPT, "-o", "taken") == 2
    assert run.out == ""
    assert run.err == f"habana_perf_tool: {tmp_path / 'taken'}: cannot write (Is a directory)\n"


REPLACED = "would be overwritten, but it is not from a simulation; choose another -o\n"


@pytest.mark.parametrize(
    ("ranks", "name"),
    [(1, "run.json"), (1, "run.log"), (1, "run.metrics.json"), (2, "run.rank0.log"), (2, "run.rank1.json")],
)
def test_only_files_of_a_simulation_are_replaced(run: Run, tmp_path: Path, ranks: int, name: str) -> None:
    Path(name).write_text('{"simulated": {}, "traceEvents": []}')
    if name == "run.metrics.json":
        # A recording, and the log of a simulation.
        Path("run.json").write_text('{"traceEvents": []}')
        Path("run.log").write_text("simulated by habana_perf_tool: virtual time, not recorded on a device\n")
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert simulate(run, SCRIPT, "--no-report", "-o", "run.json", "--ranks", str(ranks)) == 2
    first = name if name != "run.metrics.json" else "run.json"
    assert (run.out, run.err) == ("", f"habana_perf_tool: {tmp_path / first} {REPLACED}")
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.suffix != ".py"} == before


def test_files_of_a_simulation_are_replaced(run: Run, tmp_path: Path) -> None:
    for again in ("first", "second"):
        assert simulate(run, SCRIPT, "--no-report", "-o", "run.json.gz", again) == 3
    Path("run.log").unlink()
    assert simulate(run, SCRIPT, "--no-report", "-o", "run.json.gz") == 2
    assert run.err == f"habana_perf_tool: {tmp_path / 'run.metrics.json'} {REPLACED}"
    Path("run.metrics.json").unlink()
    assert simulate(run, SCRIPT, "--no-report", "-o", "run.json.gz") == 3


def test_a_file_that_the_script_wrote_is_not_replaced(run: Run, tmp_path: Path) -> None:
    assert (
        simulate(
            run,
            "import pathlib\npathlib.Path('run.log').write_text('mine')\n" + SCRIPT,
            "--no-report",
            "-o",
            "run.json",
        )
        == 2
    )
    assert run.err == f"habana_perf_tool: {tmp_path / 'run.log'} {REPLACED}"
    assert (Path("run.log").read_text(), Path("run.json").exists()) == ("mine", False)


def test_skipping_all_steps_leaves_nothing_to_report(run: Run) -> None:
    source = "import torch\nx = torch.ones(4, device='hpu')\nfor _ in range(3):\n    x.sum().item()\n"
    source += "    import habana_frameworks.torch.core as core; core.mark_step()\n"
    assert simulate(run, source, "--skip-steps", "9") == 0
    assert run.out == ""
    assert run.err.splitlines()[-1] == (
        "habana_perf_tool: --skip-steps 9 leaves no step in the trace; skip fewer to get a report"
    )


def test_a_script_that_moves_leaves_the_files_where_it_was_started(run: Run, tmp_path: Path) -> None:
    Path("other").mkdir()
    simulate(run, "import os\nos.chdir('other')\n" + SCRIPT, "--no-report")
    assert sorted(path.name for path in tmp_path.glob("script.*")) == [
        "script.py", "script.simulated.json.gz", "script.simulated.log", "script.simulated.metrics.json",
    ]  # fmt: skip


def test_each_card_is_a_separate_process(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr("perftool.sim.simulate_ranks", lambda *given: asked.append(given) or (3, []))
    (tmp_path / "ddp.py").write_text("")

    options = ["--ranks", "2", "--device", "gaudi3", "--max-steps", "4", "-o", str(tmp_path / "run.json")]

    assert run("simulate", str(tmp_path / "ddp.py"), *options, "--", "--width", "8") == 3
    passed = ["--device", "gaudi3", "--mode", "lazy", "--max-steps", "4"]
    assert asked == [(tmp_path / "ddp.py", ["--width", "8"], 2, tmp_path / "run.json", passed)]
