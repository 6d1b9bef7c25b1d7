"""Commands and the types of their options are loaded only when needed."""

from __future__ import annotations

import gc
import os

import pytest
import typer
from typer.core import TyperArgument, TyperOption
from typer.testing import CliRunner

from perftool.cli import app, main
from perftool.commands.numpy_first import load_numpy


@pytest.fixture
def no_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make typer fail if it converts the value of an option."""

    def refuse(param: object) -> None:
        raise AssertionError(f"{param} would be converted")

    for kind in (TyperOption, TyperArgument):
        monkeypatch.setattr(kind, "get_runtime_param", refuse, raising=False)


@pytest.mark.usefixtures("no_adapters")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--version"], "habana_perf_tool"),
        (["config", "fail-on"], "fail-on"),
        (["analyze", "--show-settings", "--select", "GAP", "--select", "SYN101"], 'select = ["GAP", "SYN101"]'),
    ],
)
def test_text_and_defaults_are_used_unchanged(arguments: list[str], shown: str) -> None:
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    assert shown in ran.stdout


def test_the_help_lists_every_command_with_its_first_line() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout.split())
    commands = typer.main.get_command(app).commands
    assert [name for name, command in commands.items() if f"{name} {command.help.splitlines()[0]}" not in shown] == []


@pytest.mark.parametrize("given", [None, "7"])
def test_loading_numpy_leaves_the_environment_as_it_was(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    load_numpy()
    assert os.environ.get("OPENBLAS_NUM_THREADS") == given


def test_garbage_collection_is_restored_when_the_program_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["habana_perf_tool", "--version"])
    before = gc.get_threshold()
    with pytest.raises(SystemExit):
        main()
    assert gc.get_threshold() == before
