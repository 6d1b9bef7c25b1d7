"""Streams any input as plain bytes: a file or stdin, uncompressed or compressed with gzip or Zstandard.

The compression is identified by the first bytes, not by the name. A damaged stream yields everything before the damage,
and an issue.
"""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from perftool.errors import InputError
from perftool.model.inputs import ImportIssue

BLOCK = 8 << 20
# Compressed traces have 1/30 to 1/10 of the original size, so this much compressed input yields about one BLOCK of
# output.
COMPRESSED_BLOCK = 256 << 10
# Bytes passed to the decompressor at once. gzip can expand them by a factor of 1,000, and Zstandard by a factor of
# 32,000.
_AT_ONCE = 2 << 10
# After an error, the input is decompressed in pieces of this size, to salvage the data before the damage.
_FINER = 32
STDIN = "-"
# The maximum ratio of content to compressed input; gzip achieves at most about this ratio. Zstandard could turn a
# kilobyte into 32 MB. The first _ANY_RATIO_BYTES of the content are exempt.
MOST_RATIO = 1000
_ANY_RATIO_BYTES = 64 << 20
# Python cannot limit the output of other zip methods: a kilobyte of bzip2 may expand to a gigabyte at once.
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class _Codec:
    """A compression format: the bytes at the start of a member, a constructor for a decompressor (like zlib's
    decompressobj), and the error that it raises.
    """

    name: str
    magic: tuple[bytes, ...]
    open: Callable[[], Any]
    error: type[Exception]


CODECS = (
    _Codec("gzip", (b"\x1f\x8b",), lambda: zlib.decompressobj(wbits=31), zlib.error),
    _Codec(
        "zstd",
        # A frame, or a skippable frame, which pzstd writes before each frame.
        (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + kind,)) + b"\x2a\x4d\x18" for kind in range(16))),
        lambda: zstandard.ZstdDecompressor().decompressobj(),
        zstandard.ZstdError,
    ),
)
_LONGEST_MAGIC = 4
# Limits the time spent on empty members, each of which needs a decompressor. Real writers add at most one per member.
_MOST_EMPTY = 1000


def codec_of(beginning: bytes) -> _Codec | None:
    """Return the compression of a file with this ``beginning``, or None if it is not compressed."""
    return next((codec for codec in CODECS if beginning.startswith(codec.magic)), None)


class ByteStream:
    """The uncompressed bytes of one input, block by block. Use it as a context manager.

    ``issues`` contains problems with the compression once all blocks are consumed. ``size`` is the number of bytes read
    from the file so far, before decompression.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.issues: list[ImportIssue] = []
        self.size = 0
        self._file = _open(path)

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.path != STDIN:
            self._file.close()

    def blocks(self) -> Iterator[bytes]:
        """Yield the uncompressed content in blocks of about 8 MiB."""
        block = self._read(COMPRESSED_BLOCK)
        if (codec := codec_of(block)) is not None:
            yield from self._decompress(block, codec)
            return
        while block:
            yield block
            block = self._read(BLOCK)

    def head(self, count: int) -> bytes:
        """Return the first ``count`` bytes of the uncompressed content. The stream cannot be read after that."""
        block = self._read(COMPRESSED_BLOCK)
        codec = codec_of(block)
        pieces = self._pieces(block, codec) if codec else iter([block])
        head = b""
        while len(head) < count and (piece := next(pieces, b"")):
            head += piece
        return head[:count]

    def _read(self, size: int) -> bytes:
        try:
            block = self._file.read(size)
        except OSError as error:
            raise InputError(f"{self.path}: cannot read ({error.strerror or error})") from None
        self.size += len(block)
        return block

    def _decompress(self, block: bytes, codec: _Codec) -> Iterator[bytes]:
        """Decompress all members (gzip) or frames (zstd) of the stream, and yield blocks of about 8 MiB."""
        gathered: list[bytes] = []
        size = 0
        for piece in self._pieces(block, codec):
            gathered.append(piece)
            size += len(piece)
            if size >= BLOCK:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)

    def _pieces(self, block: bytes, codec: _Codec) -> Iterator[bytes]:
        """Yield the decompressed content in pieces that are small even for highly compressed input."""
        member, at, produced, empty = codec.open(), 0, 0, 0
        while block:
            while at < len(block) and not member.eof:
                undo = member.copy() if hasattr(member, "copy") else None
                piece = block[at : at + _AT_ONCE]
                try:
                    data = member.decompress(piece)
                except codec.error as error:
                    self._damaged(codec.name, str(error))
                    if undo is not None:
                        yield from _salvage(undo, piece, codec.error)
                    return
                at += len(piece)
                produced += len(data)
                if produced > max(_ANY_RATIO_BYTES, MOST_RATIO * self.size):
                    self._damaged(codec.name, f"it unpacks to more than {MOST_RATIO:,} times its size")
                    return
                if data:
                    empty = 0
                    yield data
            if not member.eof:
                block, at = self._read(COMPRESSED_BLOCK), 0
                continue
            block, at = self._next_member(block, at - len(member.unused_data))
            if at == len(block):
                return
            if not block.startswith(codec.magic, at):
                self._damaged(codec.name, "other bytes follow it")
                return
            empty += 1
            if empty > _MOST_EMPTY:
                self._damaged(codec.name, f"more than {_MOST_EMPTY:,} parts in a row are empty")
                return
            member = codec.open()
        self._damaged(codec.name, "it ends before its end-of-stream marker")

    def _next_member(self, block: bytes, at: int) -> tuple[bytes, int]:
        """Return the block in which the next member begins, and its offset in the block. If there is none, the offset
        is that of the block's end. Zeros are skipped, because some storage pads files with zeros.
        """
        while True:
            if block[at : at + 1] == b"\0":
                at = len(block) - len(block[at:].lstrip(b"\0"))
            if len(block) - at >= _LONGEST_MAGIC or not (more := self._read(COMPRESSED_BLOCK)):
                return block, at
            block, at = block[at:] + more, 0

    def _damaged(self, kind: str, why: str) -> None:
        self.issues.append(ImportIssue("damaged compression", 1, f"the {kind} stream is damaged: {why}"))


def whole(path: str, most: int, what: str = "such a file") -> bytes:
    """Return the uncompressed content of a file. Error messages call the file ``what``.

    Raise InputError if the file cannot be read, its compression is damaged, or it has more than ``most`` bytes.
    """
    data = bytearray()
    with ByteStream(path) as stream:
        for block in stream.blocks():
            data += block
            if len(data) > most:
                raise InputError(f"{path}: larger than {most >> 20} MiB, too large for {what}")
        for issue in stream.issues:
            raise InputError(f"{path}: {issue.message}")
    return bytes(data)


def as_file(path: str) -> str:
    """Return ``path`` in a form that cannot mean stdin: for a file named like STDIN, with a folder before the name."""
    return os.path.join(os.curdir, path) if path == STDIN else path


def reads_once(path: str) -> bool:
    """Whether ``path`` can be read only once, like stdin or a pipe (``<(zcat trace.json.gz)``)."""
    return path == STDIN or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def _salvage(member: Any, piece: bytes, error: type[Exception]) -> Iterator[bytes]:
    """Decompress the part of ``piece`` before the damage, in linear time."""
    at, step = 0, _FINER
    while at < len(piece):
        undo = member.copy()
        try:
            if data := member.decompress(piece[at : at + step]):
                yield data
            at += step
        except error:
            if step == 1:
                return
            member, step = undo, 1


def _open(path: str) -> BinaryIO:
    if path == STDIN:
        if sys.stdin is None:
            raise InputError("-: standard input is closed")
        return sys.stdin.buffer
    try:
        if Path(path).is_dir():
            raise InputError(f"{path}: a folder, not a file")
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise InputError(f"{path}: cannot open ({error.strerror or error})") from None
