"""Creates rich consoles that escape text from traces and respect the usual environment variables for colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import Literal, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from perftool.errors import OutputClosedError
from perftool.reporters.escape import commands_in, escaped_mark, on_terminal

ColorMode = Literal["auto", "always", "never"]
# Wide enough, in columns, that rich does not break lines in a pipe.
_PIPE_WIDTH = 10_000


class _Trimmed:
    """Renders its content without trailing blanks, and with CI commands escaped."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for line in Segment.split_lines(console.render(self._content, options)):
            yield from _harmless(_trimmed(line))
            yield Segment.line()


def _trimmed(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].control:
        last = kept.pop()
        if text := last.text.rstrip(" "):
            return [*kept, last._replace(text=text)]
    return kept


def _harmless(line: list[Segment]) -> list[Segment]:
    """Escape the CI commands in ``line``; a command may span several segments."""
    marks = commands_in("".join(segment.text for segment in line if not segment.control))
    if not marks:
        return line
    kept, begin = [], 0
    for segment in line:
        if segment.control:
            kept.append(segment)
            continue
        end = begin + len(segment.text)
        inside = {at - begin for at in marks if begin <= at < end}
        text = "".join(escaped_mark(mark) if at in inside else mark for at, mark in enumerate(segment.text))
        kept.append(segment._replace(text=text))
        begin = end
    return kept


class _Trim(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Trimmed(content) for content in renderables]


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters in names from a trace; only those of the console itself may reach the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=on_terminal(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise an error that ``main`` handles, because rich would exit with status 1."""
        raise OutputClosedError


def make_console(color: ColorMode = "auto", *, stderr: bool = False, file: TextIO | None = None) -> Console:
    """Create a console on stdout (or stderr, or ``file``), with colours if ``color`` and the environment allow it.

    ``color`` overrides NO_COLOR, which overrides FORCE_COLOR and CLICOLOR_FORCE. By default, only a terminal
    gets colours. Without colours, the console writes no escape codes at all.
    """
    stream = file or (sys.stderr if stderr else sys.stdout)
    if isinstance(stream, TextIOWrapper):
        # Escape characters that cannot be encoded, instead of failing in the middle of the report.
        stream.reconfigure(errors="backslashreplace")
    terminal = stream.isatty()
    coloured = _wants_color(color, terminal)
    console = _Console(
        file=stream,
        force_terminal=coloured,
        color_system="auto" if coloured else None,
        no_color=not coloured,
        width=None if terminal or os.environ.get("COLUMNS") else _PIPE_WIDTH,
        # Names from traces may look like rich's markup.
        markup=False,
        emoji=False,
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
