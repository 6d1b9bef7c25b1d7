"""Looks up commands by name, and imports each only when it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from types import FunctionType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from perftool.commands.option_values import skip_conversion
from perftool.commands.options import with_options
from perftool.errors import OutputClosedError, PerfToolError, UnforeseenError
from perftool.reporters.escape import one_line

# The module of each command, in help order; its function has the name of the command.
_MODULES = {
    "analyze": "analyze", "lint": "lint", "diff": "diff", "report": "report", "annotate": "annotate",
    "whatif": "what_if", "merge": "merge", "trend": "trend", "rule": "rule", "benchmark": "benchmark",
    "config": "settings", "demo": "demo", "simulate": "simulate", "record": "record", "query": "query",
    "export": "export", "mcp": "mcp",
}  # fmt: skip
# click's UsageError, or that of the copy of click that newer releases of typer contain.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
# These two commands run programs that have their own options.
_SETTINGS = {"simulate": {"ignore_unknown_options": True}, "record": {"allow_interspersed_args": False}}


class _ByName(Mapping[str, Any]):
    """The typer commands, each built on first use."""

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


class _Answering:
    """Escapes arguments in usage errors, because they may be file names with control characters."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Escape arguments in usage errors. Raise OutputClosedError if the help is written to a closed pipe."""
        with _shown(), closed_output_exits(0):
            return super().make_context(*args, **options)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        """Escape the name in a usage error about an unknown command."""
        with _shown():
            return super().invoke(ctx)  # type: ignore[misc]


@contextmanager
def _shown() -> Iterator[None]:
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = one_line(str(error.message))  # type: ignore[attr-defined]
        raise


@contextmanager
def closed_output_exits(code: int) -> Iterator[None]:
    """Turn a broken pipe into OutputClosedError with this exit ``code``: typer would exit with 1, the code of a failed
    gate. rich reports a broken pipe as SystemExit.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit):
        raise OutputClosedError(code) from None


class _Command(_Answering, TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return skip_conversion(super().get_params(ctx))


class Commands(_Answering, TyperGroup):
    """The group of all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Wrap EOFError and BrokenPipeError in UnforeseenError: typer would exit with 1, the code of a
        failed gate."""
        try:
            return super().invoke(ctx)
        except (EOFError, BrokenPipeError) as error:
            raise UnforeseenError(error) from error

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _ByName()  # type: ignore[assignment]
        self._only_listed = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options given before a command, or without a command."""
        return skip_conversion(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in help order."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without building the commands' options, because building them would double the time."""
        self._only_listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_listed = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Look up a command. Raise PerfToolError, which suggests ``analyze``, if ``cmd_name`` is a file instead."""
        if self._only_listed:
            return TyperCommand(cmd_name, help=_help(_function(cmd_name)))
        command = super().get_command(ctx, cmd_name)
        if command is None and os.path.exists(cmd_name):
            raise PerfToolError(f"{cmd_name} is not a command; to analyse it: habana_perf_tool analyze {cmd_name}")
        return command


def _function(name: str) -> FunctionType:
    function: FunctionType = getattr(import_module(f"perftool.commands.{_MODULES[name]}"), name)
    return function


def _command(name: str) -> Any:
    function = _function(name)
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    made = app.command(name, cls=_Command, help=_help(function), context_settings=_SETTINGS.get(name))
    made(with_options(name, function))
    return typer.main.get_command(app)


def _help(function: FunctionType) -> str:
    """Return the docstring of ``function`` with each paragraph on one line, to be wrapped to the terminal's width."""
    paragraphs = cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
