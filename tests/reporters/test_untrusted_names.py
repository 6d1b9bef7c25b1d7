"""Names from a trace stay text in terminals, tables and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
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


@pytest.fixture
def shown(trace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs a command on the trace and returns its output."""
    monkeypatch.setenv("COLUMNS", "300")
    return lambda command, *options: CliRunner().invoke(app, [command, trace, *options]).output


@pytest.mark.usefixtures("remembered")
def test_no_escape_sequence_of_a_name_reaches_the_terminal(shown: Callable[..., str], trace: str) -> None:
    full = shown("analyze", "--full")
    queried = shown("query", "SELECT name FROM ops")
    others = shown("lint", "--budget", "names: SELECT count(*) FROM ops <= 0") + shown("diff", trace)

    assert [character for character in "\x1b\x07\u202e" if character in full + queried + others] == []
    assert SHOWN in full
    assert SHOWN in queried

    # The colours of the console itself stay.
    coloured = shown("analyze", "--full", "--color", "always")
    assert "\x1b[1mSummary\x1b[0m" in coloured
    assert SHOWN in coloured
    assert "\x1b]0;" not in coloured
