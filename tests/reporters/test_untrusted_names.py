"""Names from a trace stay text in terminals, tables and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perftool.cli import app

NAME = "evil\x1b]0;title\x07\x1b[2J\u202e\nnext"
SHOWN = "evil\\x1b]0;title\\x07\\x1b[2J\\u202e"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    event = {"ph": "X", "cat": "cpu_op", "name": NAME, "pid": 1, "tid": 1, "ts": 1, "dur": 9}
    step = {**event, "cat": "user_annotation", "name": f"ProfilerStep#1 {NAME}"}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"distributedInfo": "-" * 90_000 + "1", "traceEvents": [step, event]}))
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "{}", "--full"],
        ["query", "{}", "SELECT name FROM ops"],
        ["lint", "{}", "--budget", "{name}: SELECT count(*) FROM ops <= 0"],
        ["diff", "{}", "{}"],
    ],
)
def test_no_escape_sequence_of_a_name_reaches_the_terminal(
    trace: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    filled = [argument.replace("{name}", "names").replace("{}", trace) for argument in arguments]

    shown = CliRunner().invoke(app, filled).output

    assert [character for character in "\x1b\x07\u202e" if character in shown] == []
    if arguments[0] in ("analyze", "query"):
        assert SHOWN in shown


def test_colours_of_the_console_itself_stay(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")

    shown = CliRunner().invoke(app, ["analyze", trace, "--full", "--color", "always"]).output

    assert "\x1b[1mSummary\x1b[0m" in shown
    assert SHOWN in shown
    assert "\x1b]0;" not in shown
