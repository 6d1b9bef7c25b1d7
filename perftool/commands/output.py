"""Writing a document where the user wants it, whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from perftool.errors import OutputClosedError, PerfToolError

# Twice as fast as zlib's usual level, and a tenth larger.
_GZIP_LEVEL = 3
_GZIP_FORMAT = 31


def write_document(document: bytes, target: str | None) -> None:
    """Write ``document`` to the file ``target``, or to stdout when it is None or '-'.

    A file appears whole or not at all. Raises OutputClosedError when the reader of stdout has left.
    """
    write_blocks([document], target)


def said(target: str | None) -> list[str]:
    """What to say once a document is at ``target``: where, unless it went to stdout."""
    return [] if target in (None, "-") else [f"Wrote {target}"]


def write_blocks(blocks: Iterable[bytes], target: str | None) -> None:
    """Write a document that is made block by block, like ``write_document``."""
    if target not in (None, "-"):
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
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(handle, "wb") as file:
                file.writelines(blocks)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
