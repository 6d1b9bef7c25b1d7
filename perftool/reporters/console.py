"""Consoles that keep the promises about colour, width and encoding."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Literal, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from perftool.errors import OutputClosedError
from perftool.reporters.escape import on_terminal

ColorMode = Literal["auto", "always", "never"]
# Wide enough that nothing wraps in a pipe, where lines are for other programs.
_PIPE_WIDTH = 10_000


class _Trimmed:
    """What is shown of a renderable without the blanks that fill its lines: in a pipe these are noise."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for line in Segment.split_lines(console.render(self._content, options)):
            yield from _trimmed(line)
            yield Segment.line()


def _trimmed(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].control:
        last = kept.pop()
        if text := last.text.rstrip(" "):
            return [*kept, last._replace(text=text)]
    return kept


class _Trim(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Trimmed(content) for content in renderables]


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Show what a name from a trace holds of escape sequences; only the console's own may reach the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=on_terminal(segment.text))

    def on_broken_pipe(self) -> None:
        """End as every output does when its reader leaves, and not with exit code 1."""
        raise OutputClosedError


def make_console(color: ColorMode = "auto", *, stderr: bool = False, file: TextIO | None = None) -> Console:
    """A console on stdout (or stderr, or ``file``): coloured when ``color`` and the environment allow it.

    The flag wins over NO_COLOR, that over FORCE_COLOR and CLICOLOR_FORCE, and these over what the stream is.
    Without colour there are no escape codes of any kind. Any encoding will do.
    """
    stream = file or (sys.stderr if stderr else sys.stdout)
    if isinstance(stream, TextIOWrapper):
        # A name or a mark that the encoding lacks is shown as an escape; it must not end the report.
        stream.reconfigure(errors="backslashreplace")
    terminal = stream.isatty()
    coloured = _wants_color(color, terminal)
    console = _Console(
        file=stream,
        force_terminal=coloured,
        color_system="auto" if coloured else None,
        no_color=not coloured,
        width=None if terminal or os.environ.get("COLUMNS") else _PIPE_WIDTH,
        highlight=False,
        legacy_windows=False,
    )
    console.push_render_hook(_Trim())
    return console


def _wants_color(color: ColorMode, terminal: bool) -> bool:
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"
