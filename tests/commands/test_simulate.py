"""``simulate``: the script's output and exit code first, ours after it or on stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perftool.cli import app

SCRIPT = """
import sys
import torch

print("from the script", sys.argv[1:])
x = torch.ones(4, device="hpu").sum().item()
sys.exit(3)
"""


def simulate(
    folder: Path, source: str | None, *arguments: str, before: str = "pass"
) -> subprocess.CompletedProcess[str]:
    if source is not None:
        (folder / "script.py").write_text(source)
    code = f"import sys; {before}; from perftool.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_report_and_exit_code(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCRIPT, "script.py", "--device", "gaudi3", "--", "--device", "none")
    assert done.returncode == 3
    assert done.stdout.startswith("from the script ['--device', 'none']\nscript.simulated.json.gz   GAUDI3   ")
    assert "\nNot a measurement. Simulated, not recorded on a device.\n" in done.stdout
    assert done.stderr.splitlines()[1:] == [
        "Wrote script.simulated.json.gz, script.simulated.log, script.simulated.metrics.json",
        "habana_perf_tool: the script ended with exit code 3; the trace ends there",
        "habana_perf_tool: what ends graphs, reads values or is compiled anew, in the whole run:",
        "  script.py:6 <module>: 1 x read, a value on the host",
    ]


def test_files_alone(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCRIPT, "script.py", "--no-report", "--quiet", "-o", "out/run.json", "--epochs", "2")
    assert (done.stdout, done.stderr) == ("from the script ['--epochs', '2']\n", "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["run.json", "run.log", "run.metrics.json"]


def test_a_script_without_the_device(tmp_path: Path) -> None:
    done = simulate(tmp_path, "print('done')", "script.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == (
        "habana_perf_tool: the script put nothing on the device: no tensor on 'hpu', so there is no report\n"
    )


def test_a_missing_script(tmp_path: Path) -> None:
    done = simulate(tmp_path, None, "none.py")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "habana_perf_tool: none.py: no such file\n")


def test_a_missing_torch_is_one_sentence(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCRIPT, "script.py", before="sys.modules['torch'] = None")
    sentence = "simulate needs PyTorch; the extra `bench` brings it: pip install 'habana-perf-tool[bench]'."
    assert (done.returncode, done.stderr) == (2, f"habana_perf_tool: {sentence}\n")


def test_files_are_named_as_one_would_type_them(tmp_path: Path) -> None:
    done = simulate(tmp_path, SCRIPT, "script.py", "-o", "out/run.json")
    assert "from the script []\nrun.json   " in done.stdout
    assert "Wrote out/run.json, out/run.log, out/run.metrics.json\n" in done.stderr


def test_a_place_that_cannot_be_written_is_said_before_the_script_runs(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    done = simulate(tmp_path, SCRIPT, "script.py", "-o", "taken")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"habana_perf_tool: {tmp_path / 'taken'}: cannot be written (Is a directory)\n"


def test_skipping_all_steps_leaves_nothing_to_report(tmp_path: Path) -> None:
    source = "import torch\nx = torch.ones(4, device='hpu')\nfor _ in range(3):\n    x.sum().item()\n"
    source += "    import habana_frameworks.torch.core as core; core.mark_step()\n"
    done = simulate(tmp_path, source, "script.py", "--skip-steps", "9")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == (
        "habana_perf_tool: --skip-steps 9 leaves no step in the trace; skip fewer to get a report"
    )


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    done = simulate(tmp_path, None, ".")
    assert (done.returncode, done.stderr) == (2, "habana_perf_tool: .: is a folder, not a script\n")


def test_a_script_that_moves_leaves_the_files_where_it_was_started(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    simulate(tmp_path, "import os\nos.chdir('other')\n" + SCRIPT, "script.py", "--no-report")
    assert sorted(path.name for path in tmp_path.glob("script.*")) == [
        "script.py", "script.simulated.json.gz", "script.simulated.log", "script.simulated.metrics.json",
    ]  # fmt: skip


def test_several_cards_are_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr("perftool.sim.simulate_ranks", lambda *given: asked.append(given) or (3, []))
    (tmp_path / "ddp.py").write_text("")

    options = ["--ranks", "2", "--device", "gaudi3", "--max-steps", "4", "-o", str(tmp_path / "run.json")]
    done = CliRunner().invoke(app, ["simulate", str(tmp_path / "ddp.py"), *options, "--", "--width", "8"])

    assert done.exit_code == 3
    passed = ["--device", "gaudi3", "--mode", "lazy", "--max-steps", "4"]
    assert asked == [(tmp_path / "ddp.py", ["--width", "8"], 2, tmp_path / "run.json", passed)]
