"""Writing a document where the user wants it, whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import typer

from perftool.errors import PerfToolError


def write_document(document: bytes, target: str | None) -> None:
    """Write ``document`` to the file ``target``, or to stdout when it is None or '-'.

    A file appears whole or not at all. A reader that closes the pipe early is not an error: exit code 0.
    """
    if target not in (None, "-"):
        _write_file(document, Path(str(target)))
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        leave_pipe()


def leave_pipe() -> None:
    """End quietly because nobody reads the output any more."""
    # Python would complain again when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(0)


def _write_file(document: bytes, target: Path) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(document)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except OSError:
            os.unlink(name)
            raise
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
