"""Shell completion, and help that uses the full width of the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perftool
from perftool.engine.rules.pack import builtin_folder, load_pack

ROOT = Path(perftool.__file__).parent.parent
PROGRAM = "from perftool.cli import app; app(prog_name='habana_perf_tool')"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment}
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=env, capture_output=True, text=True)


def offered(line: str) -> list[str]:
    """Return what bash would offer as completions of ``line``."""
    ran = run(
        _HABANA_PERF_TOOL_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1)
    )  # fmt: skip
    assert ran.stderr == ""
    return ran.stdout.split()


CODES = [rule.code for rule in load_pack(builtin_folder())]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("habana_perf_tool ann", ["annotate"]),
        ("habana_perf_tool annotate --op", ["--open"]),
        ("habana_perf_tool lint --output-format sa", ["sarif"]),
        ("habana_perf_tool rule SYN", [code for code in CODES if code.startswith("SYN")]),
        ("habana_perf_tool analyze x.json --select GAP10", [code for code in CODES if code.startswith("GAP10")]),
        ("habana_perf_tool rule /", []),
    ],
)
def test_the_shell_is_offered_these_words(line: str, words: list[str]) -> None:
    assert offered(line) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(shell: str) -> None:
    shown = run(_HABANA_PERF_TOOL_COMPLETE=f"source_{shell}")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"_HABANA_PERF_TOOL_COMPLETE=complete_{shell}" in shown.stdout


def test_paragraphs_of_the_help_are_not_broken_where_the_source_is() -> None:
    lines = [line.strip() for line in run("analyze", "--help").stdout.splitlines()]
    assert "Several traces are read as the ranks of one run. Logs, metrics files and configurations next to" in lines


def test_brackets_in_the_help_are_shown() -> None:
    assert "[tool.habana_perf_tool] of" in run("config", "--help").stdout


@pytest.mark.parametrize(("shell", "text"), [("zsh", "#compdef "), ("fish", "complete --command")])
def test_the_shell_that_is_named_gets_its_own_completion(shell: str, text: str) -> None:
    command = [sys.executable, "-m", "perftool", "--show-completion", shell]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (shown.returncode, text in shown.stdout) == (0, True)
