"""Writes a document to stdout or to a file (``perftool.output_file``)."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perftool.errors import InputError, OutputClosedError
from perftool.model.choices import Color
from perftool.output_file import write_file
from perftool.reporters.escape import shown_document

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.reporters.console import ColorMode

# The maximum number of places of secrets that a warning lists.
_NAMED = 8


def print_notes(messages: Sequence[str], color: Color = Color.auto) -> None:
    """Print ``messages`` on stderr, one per line. If nobody reads stderr, the command still has its result to print."""
    if messages:
        from perftool.reporters.console import make_console
        from perftool.reporters.escape import one_line

        console = make_console(color.value, stderr=True)
        with suppress(BrokenPipeError):
            for message in messages:
                console.print(one_line(message), soft_wrap=True)


@contextmanager
def exit_code(code: int, unjudged: str = "") -> Iterator[None]:
    """Run the block, which prints a gate's result, then exit with ``code``, even if the reader of stdout has exited.

    Raise InputError (exit code 2) if ``unjudged`` says why there is no result.
    """
    closed = False
    try:
        yield
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        closed = True
    if unjudged:
        raise InputError(unjudged)
    if closed:
        raise OutputClosedError(code)
    if code:
        raise typer.Exit(code)


def write_document(document: bytes, target: str | None, *, verbatim: bool = False) -> None:
    """Write ``document`` to the file ``target``, or to stdout when it is None or '-'.

    On stdout, control characters and CI commands in the document are escaped, unless it is ``verbatim``. Files are
    written atomically. Raise OutputClosedError when the reader of stdout has exited.
    """
    write_blocks([document if verbatim or is_file(target) else shown_document(document)], target)


def print_document(show: Callable[[Console], None], target: str | None, color: ColorMode) -> None:
    """Let ``show`` print to stdout, or to the file ``target`` (see ``write_document``) without colour."""
    from perftool.reporters.console import make_console

    if not is_file(target):
        show(make_console(color))
        return
    text = io.StringIO()
    show(make_console("never", file=text))
    write_document(text.getvalue().encode("utf-8", "replace"), target)


def is_file(target: str | None) -> bool:
    """Whether ``target`` is a file rather than stdout."""
    return target not in (None, "-")


def written_note(target: str | None) -> list[str]:
    """Return the note that ``target`` was written, or no note for stdout."""
    return [f"Wrote {target}"] if is_file(target) else []


def write_blocks(blocks: Iterable[bytes], target: str | None) -> None:
    """Write a document block by block, without escaping it. Raise OutputClosedError like ``write_document``."""
    if is_file(target):
        write_file(blocks, Path(str(target)))
        return
    try:
        sys.stdout.flush()
        for block in blocks:
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def warn_of_secrets(places: Collection[str], redacted: bool) -> list[str]:
    """Warn about secrets in the output; ``places`` says where the input contains them."""
    names = ", ".join(sorted(places)[:_NAMED]) + (f" and {len(places) - _NAMED} more" if len(places) > _NAMED else "")
    if not places:
        return []
    if redacted:
        return [f"left out as a likely secret: {names}"]
    return [f"warning: the output contains a likely secret ({names}); --redact leaves it out"]
