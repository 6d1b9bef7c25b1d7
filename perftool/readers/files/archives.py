"""Looks for traces in archives (``rank1.zip``, ``traces.tgz``), which are not read, so that no rank is left out in
silence. Only names are compared, and only those in a part of the archive."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from perftool.errors import InputError
from perftool.readers.files.stream import ByteStream, codec_of

# The endings of files in a compression that is not read, and of archives.
PACKED_ENDS = (".xz", ".bz2", ".lzma", ".lz4", ".br", ".z")
ARCHIVE_ENDS = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
_PACKED_TARS = tuple(f".tar{end}" for end in (".gz", ".zst", *PACKED_ENDS))
# This much of the beginning and of the end of a zip is searched. Both have names: the beginning those of the first
# members, the end the last ones in the directory.
_SEARCHED = 1 << 20
_MOST_MEMBERS = 1000
_LONGEST_NAME = 4096
# The header of a member, and its entry in the directory. The length of the name is captured.
_ZIP_HEADER = re.compile(rb"PK\x03\x04.{22}(..)..|PK\x01\x02.{24}(..).{16}", re.DOTALL)
_TAR_BLOCK = 512


def is_archive(name: str) -> bool:
    """Whether a file called ``name`` is an archive."""
    return name.lower().endswith((*ARCHIVE_ENDS, *_PACKED_TARS))


def members_of(path: Path) -> Iterator[str]:
    """The names of members of a zip or a tar, which may be compressed with gzip or Zstandard. Damaged archives and
    those of other formats have fewer names, or none."""
    try:
        with path.open("rb") as file:
            head = file.read(_SEARCHED)
            if head.startswith(b"PK"):
                file.seek(max(len(head), path.stat().st_size - _SEARCHED))
                yield from _in_zip(head + file.read(_SEARCHED))
            elif codec_of(head):
                with ByteStream(str(path)) as stream:
                    yield from _in_tar(io.BytesIO(next(stream.blocks(), b"")))
            else:
                yield from _in_tar(file)
    except (InputError, OSError):
        return


def _in_zip(data: bytes) -> Iterator[str]:
    at = 0
    # Names do not overlap, so this takes linear time.
    while header := _ZIP_HEADER.search(data, at):
        at = header.end() + int.from_bytes(header[1] or header[2], "little")
        yield _text(data[header.end() : at])


def _in_tar(file: BinaryIO) -> Iterator[str]:
    at = 0
    for _ in range(_MOST_MEMBERS):
        file.seek(at)
        header = file.read(_TAR_BLOCK)
        try:
            size = int(header[124:136].strip(b" \0") or b"0", 8)
        except ValueError:
            return
        if header[257:262] != b"ustar" or size < 0:
            return
        if header[156:157] in (b"L", b"x"):
            # A long name of the next member: on its own, or as one of several settings.
            for line in file.read(min(size, _LONGEST_NAME)).splitlines():
                yield _text(line.rpartition(b"path=")[2])
        else:
            yield _text(header[:100])
        at += _TAR_BLOCK - -size // _TAR_BLOCK * _TAR_BLOCK


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode(errors="replace")
