"""A document where the user wants it: on stdout, or in a file (``perftool.output_file``)."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perftool.errors import OutputClosedError
from perftool.output_file import require_no_input as require_no_input
from perftool.output_file import write_file

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.reporters.console import ColorMode


def write_document(document: bytes, target: str | None) -> None:
    """Write ``document`` to the file ``target``, or to stdout when it is None or '-'.

    A file appears whole or not at all. Raises OutputClosedError when the reader of stdout has left.
    """
    write_blocks([document], target)


def print_document(show: Callable[[Console], None], target: str | None, color: ColorMode) -> None:
    """Let ``show`` print to stdout, or to the file ``target`` as ``write_document`` does, without colour."""
    from perftool.reporters.console import make_console

    if not is_file(target):
        show(make_console(color))
        return
    text = io.StringIO()
    show(make_console("never", file=text))
    write_document(text.getvalue().encode("utf-8", "replace"), target)


def is_file(target: str | None) -> bool:
    """Whether a document for ``target`` goes to a file, and not to stdout."""
    return target not in (None, "-")


def said(target: str | None) -> list[str]:
    """What to say once a document is at ``target``: where, unless it went to stdout."""
    return [f"Wrote {target}"] if is_file(target) else []


def write_blocks(blocks: Iterable[bytes], target: str | None) -> None:
    """Write a document that is made block by block, like ``write_document``."""
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


def warn_of_secrets(secrets: Mapping[str, str], redacted: bool) -> list[str]:
    """What to say of ``secrets`` (by name) in what was written."""
    names = ", ".join(sorted(secrets))
    if not secrets:
        return []
    if redacted:
        return [f"left out, as it looks like a secret: {names}"]
    return [f"warning: what was written holds what looks like a secret ({names}); --redact leaves it out"]
