"""``demo`` shows a report. It opens a browser only if a person sits at a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from perftool.cli import app
from perftool.commands import demo as demo_command


def test_the_sample_is_analysed_and_its_page_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_command.webbrowser, "open", lambda address: pytest.fail(f"opened {address}"))
    page = tmp_path / "demo.html"

    result = CliRunner().invoke(app, ["demo", "-o", str(page)])

    assert result.exit_code == 0, result.output
    assert "GAUDI2" in result.output
    assert "Made by hand" in result.output
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_a_terminal_only_the_answer_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_command.webbrowser, "open", lambda address: pytest.fail(f"opened {address}"))

    result = CliRunner().invoke(app, ["demo", "-q"])

    assert (result.exit_code, result.stderr) == (0, "")
    assert "What to change" in result.stdout
