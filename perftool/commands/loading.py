"""The commands by name. Each is imported when somebody names it, so that no run pays for the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import cleandoc
from types import FunctionType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from perftool.commands.as_given import take_as_given
from perftool.errors import PerfToolError

# The module of each command, in the order of the help; the function in it is called like the command.
_MODULES = {
    "analyze": "analyze", "lint": "lint", "diff": "diff", "report": "report", "annotate": "annotate",
    "whatif": "what_if", "merge": "merge", "trend": "trend", "rule": "rule", "benchmark": "benchmark",
    "config": "settings", "demo": "demo", "simulate": "simulate", "record": "record", "query": "query",
}  # fmt: skip
# The programs that these two run have options of their own.
_SETTINGS = {"simulate": {"ignore_unknown_options": True}, "record": {"allow_interspersed_args": False}}


class _ByName(Mapping[str, Any]):
    """The commands as typer makes them, each when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return take_as_given(super().get_params(ctx))


class Commands(TyperGroup):
    """All commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _ByName()  # type: ignore[assignment]
        self._only_listed = False

    def get_params(self, ctx: Any) -> list[Any]:
        """The options that stand before a command, or without one."""
        return take_as_given(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the help."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, for which the commands need no options: these take as long to make as all the rest."""
        self._only_listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_listed = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; a file in its place is answered with the command that was meant."""
        if self._only_listed:
            return TyperCommand(cmd_name, help=_help(_function(cmd_name)))
        command = super().get_command(ctx, cmd_name)
        if command is None and os.path.exists(cmd_name):
            raise PerfToolError(f"{cmd_name} is not a command; to analyse it: habana_perf_tool analyze {cmd_name}")
        return command


def _function(name: str) -> FunctionType:
    """What the command ``name`` calls."""
    function: FunctionType = getattr(import_module(f"perftool.commands.{_MODULES[name]}"), name)
    return function


def _command(name: str) -> Any:
    function = _function(name)
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name, cls=_Command, help=_help(function), context_settings=_SETTINGS.get(name))(function)
    return typer.main.get_command(alone)


def _help(function: FunctionType) -> str:
    """The docstring of ``function``, to fill the terminal: a paragraph is one line, of whatever width there is."""
    paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
