"""Runs the script about the life of a team, which records its own traces. Every act must end as expected."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "life_of_a_team.py"
LINT = "perftool lint traces"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the play records with PyTorch")
def test_every_act_ends_as_it_must(tmp_path: Path) -> None:
    surroundings = ("GITHUB_", "CI_", "HABANA_PERF_TOOL_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(surroundings)}
    played = subprocess.run(
        [sys.executable, str(SCRIPT), "--again", "3"], cwd=tmp_path, env=env, capture_output=True, encoding="utf-8"
    )

    expected = [
        f"a clean run: {LINT} -> exit 0: All checks passed!",
        f"a slow loader: {LINT} --output-format github -> exit 1: ::warning title=habana_perf_tool (GAP102),file=",
        f"accept it: {LINT} --write-baseline accepted.json -> exit 0: All checks passed! (1 suppressed)",
        f"check that: {LINT} --baseline accepted.json -> exit 0: All checks passed! (1 suppressed)",
        f"record again: {LINT} --baseline accepted.json -> exit 0, 3 of 3 times: All checks passed! (1 suppressed)",
        f"fix it: {LINT} --baseline accepted.json -> exit 0: stale baseline entry: GAP102 enumerate(DataLoader)",
    ]
    shown = played.stdout.splitlines()
    assert [line[: len(start)] for line, start in zip(shown, expected, strict=True)] == expected, played.stderr
    assert re.search(r"the program loads data itself, without worker processes, for \d", shown[1])
    assert played.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_an_act_that_ends_otherwise_fails_the_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(SCRIPT))
    act = script["Act"]("nothing recorded", (), 0, "All checks passed!")

    assert script["play"](act, tmp_path) is False
    assert capsys.readouterr().out == (
        f"nothing recorded: {LINT} -> WRONG: exit 2: habana_perf_tool: traces: no such file\n"
    )


def test_without_torch_one_sentence_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", [str(SCRIPT)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")

    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "Recording needs PyTorch; the extra `bench` installs it: pip install 'habana-perf-tool[bench]'."
    ]
