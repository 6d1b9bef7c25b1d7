"""What a trace says of itself around its events: its rank, its run, its device, its clock."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perftool.errors import InputError
from perftool.readers.files.host_name import process_of
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import beginning, is_url
from perftool.readers.files.stream import CODECS, COMPRESSED_BLOCK, ByteStream, reads_once
from perftool.readers.trace import envelope

# Kineto writes a few hundred bytes behind the events.
_TAIL = 64 << 10
_TS = re.compile(rb'"ts"\s*:\s*"?(\d{1,19})')
_PID = re.compile(rb'"pid"\s*:\s*"?(\d{1,9})')
_LARGEST_LANE = 99
_FIRST_TIMES = 99
# Times before the year 2001 count from something else, such as the start of the machine.
_EARLIEST_NS = 10**18


@dataclass(frozen=True)
class Identity:
    """What a trace says of its place in a run; None where it says nothing.

    ``start_ns`` counts from 1970, ``process`` is the number of the process that recorded it.
    """

    path: str
    rank: int | None
    world_size: int | None
    device: str | None
    start_ns: int | None
    process: int | None = None


def identify(path: str) -> Identity:
    """The identity of the trace at ``path``, from its metadata, the times of its first events, and its name."""
    head, metadata = _around(path)
    found = metadata.get("distributedInfo")
    info = found if isinstance(found, dict) else {}
    devices = metadata.get("deviceProperties")
    device = devices[0].get("name") if isinstance(devices, list) and devices and isinstance(devices[0], dict) else None
    rank = _whole(info.get("rank"))
    return Identity(
        path=path,
        rank=rank_of(path) if rank is None else rank,
        world_size=_whole(info.get("world_size")),
        device=device if isinstance(device, str) and device else None,
        start_ns=_start_ns(head, _whole(metadata.get("baseTimeNanoseconds")) or 0),
        process=process_of(path) or _process(head),
    )


def metadata_of(path: str) -> dict[str, Any]:
    """The metadata before the events of the trace at ``path`` and, where it costs no reading of all, behind them.

    Empty for what is damaged, is no trace, or can be read only once. Without the members of process groups.
    """
    return without_members(_around(path)[1])


def without_members(metadata: dict[str, Any]) -> dict[str, Any]:
    """``metadata`` without the process groups: each rank lists the ranks of all, which grows with their square."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict) or "pg_config" not in info:
        return metadata
    return {**metadata, "distributedInfo": {key: value for key, value in info.items() if key != "pg_config"}}


def _around(path: str) -> tuple[bytes, dict[str, Any]]:
    """The beginning of the events of a trace, and its metadata."""
    if reads_once(path):
        return b"", {}
    try:
        return _of_url(path) if is_url(path) else _of_file(path)
    except InputError:
        return b"", {}


def _of_url(url: str) -> tuple[bytes, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        copy = Path(folder) / "beginning"
        copy.write_bytes(beginning(url, COMPRESSED_BLOCK))
        return _of_file(str(copy))


def _of_file(path: str) -> tuple[bytes, dict[str, Any]]:
    first, last, compressed = _ends(path)
    if compressed:
        first = _first_block(path)
        last = first[-_TAIL:] if last else b""
    head = envelope.read_head(first)
    if head is None and not compressed and len(first) == COMPRESSED_BLOCK:
        first = _first_block(path)
        head = envelope.read_head(first)
    if head is None:
        return b"", {}
    tail = envelope.read_tail(last, bare=head.bare)
    return first[head.start :], {**head.metadata, **(tail.metadata if tail else {})}


def _first_block(path: str) -> bytes:
    with ByteStream(path) as stream:
        return next(stream.blocks(), b"")


def _ends(path: str) -> tuple[bytes, bytes, bool]:
    """The first and the last bytes of a file, and whether it is compressed; no last bytes for a long one that is."""
    try:
        with open(path, "rb") as file:
            first = file.read(COMPRESSED_BLOCK)
            compressed = first.startswith(tuple(codec.magic for codec in CODECS))
            size = file.seek(0, os.SEEK_END)
            file.seek(-min(size, _TAIL), os.SEEK_END)
            return first, b"" if compressed and size > COMPRESSED_BLOCK else file.read(), compressed
    except OSError:
        return b"", b"", False


def _start_ns(events: bytes, base_ns: int) -> int | None:
    """When the recording began, by its first events; None when their clock has no date."""
    from statistics import median

    times = [int(found[1]) for found, _ in zip(_TS.finditer(events), range(_FIRST_TIMES), strict=False)]
    start = int(median(times)) * 1000 + base_ns if times else 0
    return start if start > _EARLIEST_NS else None


def _process(events: bytes) -> int | None:
    """The process that most of the first events are of. Lanes of devices count from 0, so small numbers tell none."""
    numbers = [int(found[1]) for found, _ in zip(_PID.finditer(events), range(_FIRST_TIMES), strict=False)]
    told = [number for number in numbers if number > _LARGEST_LANE]
    from statistics import mode

    return mode(told) if told else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
