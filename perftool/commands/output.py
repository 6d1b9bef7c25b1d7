"""Writing a document where the user wants it, whole or not at all, and never over an input of the run."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rich.console import Console

from perftool.errors import OutputClosedError, PerfToolError
from perftool.reporters.console import ColorMode, make_console

# Twice as fast as zlib's usual level, and a tenth larger.
_GZIP_LEVEL = 3
_GZIP_FORMAT = 31


def require_no_input(targets: Iterable[str | None], inputs: Iterable[str]) -> None:
    """Raises PerfToolError when one of ``targets`` is the same file as one of ``inputs``, by whatever name.

    To be asked before the inputs are read: what they say would be gone.
    """
    read = {key for path in inputs if (key := _identity(path))}
    for target in targets:
        if is_file(target) and _identity(str(target)) in read:
            raise PerfToolError(f"{target}: is an input of this run, which is never changed; name another file")


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a regular file from all others; None for what is none, or not there."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def write_document(document: bytes, target: str | None) -> None:
    """Write ``document`` to the file ``target``, or to stdout when it is None or '-'.

    A file appears whole or not at all. Raises OutputClosedError when the reader of stdout has left.
    """
    write_blocks([document], target)


def print_document(show: Callable[[Console], None], target: str | None, color: ColorMode) -> None:
    """Let ``show`` print to stdout, or to the file ``target`` as ``write_document`` does, without colour."""
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
        _write_file(blocks, Path(str(target)))
        return
    try:
        sys.stdout.flush()
        for block in blocks:
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def gzipped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """``blocks`` as one gzip stream, which holds no name and no time."""
    squeeze = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_FORMAT)
    for block in blocks:
        yield squeeze.compress(block)
    yield squeeze.flush()


def _write_file(blocks: Iterable[bytes], target: Path) -> None:
    """Replace a regular file once the new one is whole; write into a device, a pipe or a socket as it stands.

    A symbolic link is followed: the user named it, and it goes on pointing where it does.
    """
    try:
        mode = target.stat().st_mode if target.exists() else None
        if mode is None or stat.S_ISREG(mode):
            _replace(blocks, Path(os.path.realpath(target)), 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
            return
        with open(target, "wb", buffering=0) as file:
            for block in blocks:
                file.write(block)
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None


def _replace(blocks: Iterable[bytes], target: Path, mode: int) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:
            file.writelines(blocks)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def warn_of_secrets(secrets: Mapping[str, str], redacted: bool) -> list[str]:
    """What to say of ``secrets`` (by name) in what was written."""
    names = ", ".join(sorted(secrets))
    if not secrets:
        return []
    if redacted:
        return [f"left out, as it looks like a secret: {names}"]
    return [f"warning: what was written holds what looks like a secret ({names}); --redact leaves it out"]
