"""Makes two checks that zipfile omits: how many members the end of a zip states, and whether the file contains stray
bytes."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import IO

_END, _ZIP64_END, _ZIP64_AT = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _ZIP64_BYTES = 22, 56 + 20
_LONGEST_END = (64 << 10) + _END_BYTES + _ZIP64_BYTES
# The flag of a member whose sizes follow its content in a data descriptor, and the possible lengths of that descriptor:
# a checksum and two sizes of 4 or 8 bytes each, with or without a signature.
_DESCRIBED = 8
_NO_GAP: tuple[int, ...] = (0,)
_DESCRIPTORS = (12, 16, 20, 24)


@dataclass(frozen=True)
class ZipEnd:
    """What the end of a zip states: the number of ``entries`` in its directory, and where the directory begins and
    ends. ``at`` is the offset of this end record, and ``after`` the number of bytes that follow it.
    """

    entries: int
    directory: tuple[int, int]
    at: int
    after: int


def zip_end(file: IO[bytes] | io.FileIO) -> ZipEnd:
    """Return the end record of the zip ``file``, located in the same way as zipfile does."""
    size = file.seek(0, io.SEEK_END)
    start = file.seek(-min(size, _LONGEST_END), io.SEEK_END)
    tail = file.read(_LONGEST_END)
    at = len(tail) - _END_BYTES
    if tail[at : at + 4] != _END or tail[-2:] != b"\0\0":
        at = tail.rfind(_END)
    after = len(tail) - at - _END_BYTES - _number(tail, at + 20, 2)
    if tail[max(at - 20, 0) : at].startswith(_ZIP64_AT) and tail[max(at - 76, 0) : at].startswith(_ZIP64_END):
        at -= _ZIP64_BYTES
        entries, length, begin = (_number(tail, at + place, 8) for place in (32, 40, 48))
    else:
        entries, length, begin = (_number(tail, at + place, count) for place, count in ((10, 2), (12, 4), (16, 4)))
    return ZipEnd(entries, (begin, begin + length), start + at, after)


def stray_bytes(file: IO[bytes] | io.FileIO, archive: zipfile.ZipFile) -> str | None:
    """Return where the zip ``file`` contains bytes that belong neither to a member of ``archive`` nor to its directory,
    or None if it contains no such bytes. zipfile ignores such bytes, which may be another archive.
    """
    end = zip_end(file)
    if end.after:
        return "other bytes follow its end"
    begin, stop = end.directory
    if stop != end.at:
        return "other bytes precede it, or its directory"
    place, gaps = 0, _NO_GAP
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        if entry.header_offset - place not in gaps or entry.header_offset > begin:
            return f"other bytes precede {entry.filename}"
        file.seek(entry.header_offset + 26)
        lengths = file.read(4)
        place = entry.header_offset + 30 + _number(lengths, 0, 2) + _number(lengths, 2, 2) + entry.compress_size
        gaps = _DESCRIPTORS if entry.flag_bits & _DESCRIBED else _NO_GAP
    return None if begin - place in gaps else "other bytes precede its directory"


def _number(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")
