"""Reads the ``.hltv`` archives that Gaudi's native profiler writes for its viewer. They are zips or gzipped tars.

Reads ``views/trace_analyzer.json``, ``prof-data/post-graph/*.json`` and ``prof-data/host/host_trace.json``; only
``synprof_parser`` can read the raw hardware trace in ``prof-data/bin``. Archives are untrusted. Members are matched by
their full names, which are never used for writing. Nested archives and repeated names are ignored. A link in place of a
member counts as damage. The number of members, their sizes and the compression ratio are limited.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from perftool.errors import InputError
from perftool.model.inputs import UNREAD, ImportIssue, ReadingKind
from perftool.model.records import LogReading, combine
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.stream import ZIP_METHODS, ByteStream
from perftool.readers.files.zip_layout import stray_bytes, zip_end
from perftool.readers.nodes import analyzed_nodes, first_bytes, post_graph

MOST_MEMBERS = 20_000
MOST_MEMBER_BYTES = 1 << 30
# JSON compresses to 1/20 of its size, rarely to 1/100.
MOST_RATIO = 200
_ANY_RATIO_BYTES = 32 << 20
# A directory entry in a zip takes 46 bytes plus the name.
_MOST_DIRECTORY_BYTES = MOST_MEMBERS * 512
_ZIP, _ZIP_END, _GZIP = b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b"
# The flags of an encrypted member, and of a member whose name is UTF-8.
_ENCRYPTED, _UTF_8 = 1, 0x800
_BLOCK = 1 << 20
# tarfile copies the global headers of an archive into each member. Archives made by git have one.
_MOST_GLOBAL, _LONGEST_GLOBAL = 16, 1000
# Before Python 3.11.10 and 3.12.6, tarfile takes time quadratic in the length of an extended header. So the sum of the
# squared lengths is limited; 20,000 headers of 150 bytes fit.
_MOST_STEPS = 500_000_000
# This byte in the header of a sparse file says whether its list of blocks continues after the header.
_MORE_BLOCKS = 482
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
# At most this many damaged members are reported one by one; the rest are counted.
_MOST_ISSUES = 10

_ANALYZER = "views/trace_analyzer.json"
_HOST = "prof-data/host/host_trace.json"
_GRAPH = re.compile(r"prof-data/post-graph/[^/\\]+\.json")
_RAW = re.compile(r"prof-data/bin/[^/\\]+")


def read(path: str, rank: int | None = None) -> LogReading:
    """Read the nodes in an archive, and report members that only ``synprof_parser`` can read.

    Leave out damaged members, and count them. Raise InputError if nothing useful remains, or if the archive exceeds
    a limit.
    """
    rank = rank_of(path) if rank is None else rank
    readings: list[LogReading] = []
    issues: list[ImportIssue] = []
    raw, host = 0, False
    with _Members(path) as members:
        for name, content in members:
            raw += _RAW.fullmatch(name) is not None
            host = host or name == _HOST
            reader = _reader(name)
            if reader is None:
                continue
            try:
                readings.append(reader(b"".join(content()), rank, f"{path}: {name}"))
            except _BoundError:
                raise
            except InputError as error:
                issues.append(ImportIssue("damaged member", 1, str(error)))
        issues += members.issues
    if len(issues) > _MOST_ISSUES:
        rest = len(issues) - _MOST_ISSUES
        issues[_MOST_ISSUES:] = [ImportIssue("damaged member", rest, f"and {rest:,} more members are damaged")]
    if not readings and not host:
        what = "only a raw hardware trace, which synprof_parser --csv turns into CSV" if raw else "no known content"
        raise InputError("; ".join([f"{path}: {what}", *(issue.message for issue in issues)]))
    if raw:
        issues.append(
            ImportIssue(UNREAD, raw, f"raw hardware traces, which synprof_parser --csv turns into CSV: {raw}")
        )
    kind: ReadingKind = "nodes" if any(reading.nodes for reading in readings) else "graph"
    return combine((*readings, LogReading(issues=tuple(issues))), kind=kind)


def _reader(name: str) -> Callable[[bytes, int | None, str], LogReading] | None:
    if name == _ANALYZER:
        return analyzed_nodes.read_view
    return post_graph.read if _GRAPH.fullmatch(name) else None


def _is_used(name: str) -> bool:
    return name == _HOST or _reader(name) is not None


def has_host_trace(path: str) -> bool | None:
    """Whether the archive contains host calls, or None if damage or a limit leaves this unknown."""
    try:
        with _Members(path) as members:
            return any(name == _HOST for name, _ in members) or (None if members.issues else False)
    except InputError:
        return None


def copy_host_trace(path: str, into: Path) -> None:
    """Write the trace of host calls to the file ``into``. Raise InputError if there is none."""
    with _Members(path) as members:
        for name, content in members:
            if name == _HOST:
                with into.open("wb") as target:
                    for block in content():
                        target.write(block)
                return
    raise InputError(f"{path}: no host trace ({_HOST})")


class _BoundError(InputError):
    """The archive is larger than any real archive."""


_Content = Callable[[], Iterator[bytes]]


class _Members:
    """The names and contents of the regular files in an archive, in order. Use it as a context manager.

    Read the content of a member before you go on to the next. ``issues`` reports a tar that is damaged or truncated.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = ExitStack()
        self._unpacked = 0
        self.issues: list[ImportIssue] = []

    def __enter__(self) -> _Members:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[tuple[str, _Content]]:
        begins = first_bytes(self._path)
        if not begins.startswith((_ZIP, _ZIP_END, _GZIP)):
            raise InputError(f"{self._path}: neither a zip nor a gzipped tar, so not an .hltv file")
        members = self._tar() if begins.startswith(_GZIP) else self._zip()
        seen: set[str] = set()
        for count, (written, content) in enumerate(members, 1):
            if count > MOST_MEMBERS:
                raise _BoundError(f"{self._path}: more than {MOST_MEMBERS:,} files, which no profiler writes")
            name = written.removeprefix("./")
            if content is None:
                if _is_used(name):
                    self._damaged(f"{name} is not a regular file")
            elif name not in seen:
                seen.add(name)
                yield name, content

    def _damaged(self, why: str) -> None:
        self.issues.append(ImportIssue("damaged member", 1, f"{self._path}: {why}"))

    def _zip(self) -> Iterator[tuple[str, _Content | None]]:
        file = self._open.enter_context(_ZipFile(self._path))
        try:
            archive = self._open.enter_context(zipfile.ZipFile(file))
            stated, stray = zip_end(file).entries, stray_bytes(file, archive)
        except _DAMAGE as error:
            raise InputError(f"{self._path}: the archive is damaged or truncated ({error})") from None
        entries = archive.infolist()
        if stated != len(entries):
            # zipfile does not check the stated number.
            self.issues.append(
                ImportIssue(
                    "damaged archive",
                    1,
                    f"the archive's directory lists {len(entries):,} files, but its end record says {stated:,}",
                )
            )
        if stray is not None:
            self.issues.append(ImportIssue("damaged archive", 1, f"the archive is damaged: {stray}"))
        for info in entries:
            # zipfile compares only the members that it opens, so a changed name would hide its member.
            if not _is_listed_as_stored(file, info):
                self._damaged(f"{info.filename} has a directory entry that does not match its local header")
                yield "", None
                continue
            link = stat.S_ISLNK(info.external_attr >> 16)
            yield info.filename, None if link or info.is_dir() else partial(self._unzipped, archive, info)

    def _unzipped(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
        if info.flag_bits & _ENCRYPTED:
            raise InputError(f"{self._path}: {info.filename} is encrypted")
        if info.compress_type not in ZIP_METHODS:
            raise InputError(f"{self._path}: {info.filename} uses a compression method that no profiler uses")
        # Limit the total rather than each ratio, because several members may share the same compressed bytes.
        most = max(_ANY_RATIO_BYTES, MOST_RATIO * Path(self._path).stat().st_size) - self._unpacked
        try:
            with archive.open(info) as file:
                for block in self._bounded(info.filename, file, most):
                    self._unpacked += len(block)
                    yield block
        except _DAMAGE as error:
            raise InputError(f"{self._path}: {info.filename} is damaged or truncated ({error})") from None

    def _tar(self) -> Iterator[tuple[str, _Content | None]]:
        stream = self._open.enter_context(ByteStream(self._path))
        # Each archive needs its own class, because the class counts down the limits.
        counted = type("_Counted", (_Header,), {})
        try:
            with tarfile.open(fileobj=_Decompressed(stream), mode="r|", tarinfo=counted) as archive:
                while info := archive.next():
                    # tarfile would keep all members in memory for lookups, which are not needed here.
                    archive.members.clear()  # type: ignore[attr-defined]
                    # A sparse file may be huge; no profiler writes one.
                    plain = info.isreg() and not info.issparse()
                    yield info.name, partial(self._untarred, archive, info) if plain else None
                # tarfile stops at the end-of-archive marker, but the compressed stream's checksum comes after it.
                if any(block.strip(b"\0") for block in iter(partial(archive.fileobj.read, _BLOCK), b"")):
                    raise tarfile.ReadError("trailing data after the end-of-archive marker")
                if stream.issues:
                    raise tarfile.ReadError(stream.issues[0].message)
        except _DAMAGE as error:
            # Members before the damage are still usable.
            why = stream.issues[0].message if stream.issues else str(error)
            self.issues.append(ImportIssue("damaged archive", 1, f"the archive is damaged or truncated: {why}"))

    def _untarred(self, archive: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
        try:
            if file := archive.extractfile(info):
                yield from self._bounded(info.name, file, MOST_MEMBER_BYTES)
        except _DAMAGE as error:
            raise InputError(f"{self._path}: {info.name} is damaged or truncated ({error})") from None

    def _bounded(self, name: str, file: IO[bytes], most: int) -> Iterator[bytes]:
        """Yield the content of ``file``. Raise InputError if it has more than ``most`` bytes."""
        size = 0
        while block := file.read(_BLOCK):
            size += len(block)
            if size > min(most, MOST_MEMBER_BYTES):
                raise _BoundError(f"{self._path}: {name} unpacks to more than {size >> 20} MiB: an archive bomb")
            yield block


# Damaged headers can make tarfile recurse, seek to any offset, or read beyond a block. Hence the last three errors.
_DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OSError,
    OverflowError, RecursionError, IndexError,
)  # fmt: skip


_Info = TypeVar("_Info", bound="_Header")


class _Header(tarfile.TarInfo):
    """A header of a tar. It rejects archives with too many or too long extended or global headers."""

    _left = _MOST_STEPS

    @classmethod
    def frombuf(cls: type[_Info], buf: bytes | bytearray, encoding: str, errors: str) -> _Info:
        """Parse the header in ``buf``. Raise ReadError if it is damaged, or if extended headers exceed the limit."""
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # tarfile would silently stop at a damaged or missing header. Only the end-of-archive marker consists of
            # zeros.
            if buf and not any(buf):
                raise
            raise tarfile.ReadError(str(error)) from None
        if info.type == tarfile.GNUTYPE_SPARSE and buf[_MORE_BLOCKS]:
            # tarfile would read the list of blocks, which may be as long as the archive.
            raise tarfile.ReadError("a sparse file with more blocks than any profiler writes")
        if info.type in _EXTENDED:
            cls._left -= info.size**2
            if cls._left < 0:
                raise tarfile.ReadError("longer headers than any profiler writes")
        return info

    @classmethod
    def fromtarfile(cls: type[_Info], archive: tarfile.TarFile) -> _Info:
        """Read the next header of ``archive``. Raise ReadError if the global headers exceed a limit."""
        shared = archive.pax_headers
        if len(shared) > _MOST_GLOBAL or any(len(value) > _LONGEST_GLOBAL for value in shared.values()):
            raise tarfile.ReadError("more global headers than any profiler writes")
        return super().fromtarfile(archive)

    def _proc_gnusparse_10(self, following: tarfile.TarInfo, *_: object) -> None:
        """Only mark ``following`` as sparse. tarfile would read its list of blocks, which may be as long as the
        archive."""
        following.sparse = b""


class _Decompressed(io.RawIOBase):
    """The content of a compressed stream as a file, up to a maximum compression ratio."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self._blocks = stream, stream.blocks()
        self._rest = memoryview(b"")
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` and return the number of bytes, which is 0 at the end. Raise InputError for an archive
        bomb."""
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
            self._given += len(self._rest)
            if self._given > max(_ANY_RATIO_BYTES, MOST_RATIO * self._stream.size):
                raise _BoundError(f"{self._stream.path}: compressed more than {MOST_RATIO}-fold: an archive bomb")
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class _ZipFile(io.FileIO):
    """A zip file that refuses to read a huge directory, because zipfile reads the directory in one piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes. Raise InputError if ``size`` exceeds the limit for a directory."""
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise _BoundError(f"{self.name!s}: more files than the {MOST_MEMBERS:,} that a profiler writes")
        return super().read(size)


def _is_listed_as_stored(file: io.FileIO, info: zipfile.ZipInfo) -> bool:
    """Whether the header before a member's content has the name, the method and the relevant flags of ``info``."""
    name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF_8 else "cp437")
    try:
        file.seek(info.header_offset)
        header = file.read(30 + len(name))
    except _DAMAGE:
        return False
    if len(header) < 30 or not header.startswith(_ZIP):
        return False
    flags, method, length = (int.from_bytes(header[place : place + 2], "little") for place in (6, 8, 26))
    same_flags = not (flags ^ info.flag_bits) & (_ENCRYPTED | _UTF_8)
    return same_flags and (method, length, header[30:]) == (info.compress_type, len(name), name)
