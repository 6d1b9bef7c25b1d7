"""What a trace says of itself around its events: its rank, its run, its device, its clock."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from perftool.errors import InputError
from perftool.readers.files.remote import beginning, is_url
from perftool.readers.files.stream import CODECS, COMPRESSED_BLOCK, ByteStream, reads_once
from perftool.readers.trace import envelope

# Kineto writes a few hundred bytes behind the events.
_TAIL = 64 << 10


def metadata_of(path: str) -> dict[str, Any]:
    """The metadata before the events of the trace at ``path`` and, where it costs no reading of all, behind them.

    Empty for what is damaged, is no trace, or can be read only once.
    """
    if reads_once(path):
        return {}
    try:
        return _of_url(path) if is_url(path) else _of_file(path)
    except InputError:
        return {}


def _of_url(url: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        copy = Path(folder) / "beginning"
        copy.write_bytes(beginning(url, COMPRESSED_BLOCK))
        return _of_file(str(copy))


def _of_file(path: str) -> dict[str, Any]:
    with ByteStream(path) as stream:
        block = next(stream.blocks(), b"")
    head = envelope.read_head(block)
    if head is None:
        return {}
    tail = envelope.read_tail(_last(path, block), bare=head.bare)
    return {**head.metadata, **(tail.metadata if tail else {})}


def _last(path: str, block: bytes) -> bytes:
    """The end of the text whose first block is ``block``; nothing when it is compressed and long."""
    try:
        with open(path, "rb") as file:
            compressed = file.read(4).startswith(tuple(codec.magic for codec in CODECS))
            size = file.seek(0, os.SEEK_END)
            if compressed:
                return block[-_TAIL:] if size <= COMPRESSED_BLOCK else b""
            file.seek(-min(size, _TAIL), os.SEEK_END)
            return file.read()
    except OSError:
        return b""
