"""Reads the rank, run, device and clock of a trace from its metadata."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perftool.errors import InputError
from perftool.readers.files.host_name import host_in_name, process_of, stated_host
from perftool.readers.files.rank_name import rank_of
from perftool.readers.files.remote import local_copy
from perftool.readers.files.stream import COMPRESSED_BLOCK, ByteStream, codec_of, reads_once
from perftool.readers.files.unchanged import once_per_file
from perftool.readers.text.json_values import integer
from perftool.readers.trace import envelope
from perftool.units import EARLIEST_DATE_NS

# Kineto writes a few hundred bytes after the events.
_TAIL = 64 << 10
_TS = re.compile(rb'"ts"\s*:\s*"?(\d{1,19})')
_PID = re.compile(rb'"pid"\s*:\s*"?(\d{1,9})')
_LARGEST_LANE = 99
# PyTorch's default descriptions of groups, which do not name a role.
_NO_ROLES = {"", "default_pg", "undefined"}
# Generous limits: a rank belongs to a few groups, and a role is a short word.
_MOST_GROUPS, _LONGEST_ROLE = 256, 60
_FIRST_TIMES = 99


@dataclass(frozen=True)
class Identity:
    """What identifies a trace in a run. Missing values are None.

    ``start_ns`` counts from 1970; ``process`` is the ID of the process on ``host`` that recorded the trace.
    ``readable`` is false if the file does not begin like a trace.
    """

    path: str
    rank: int | None
    world_size: int | None
    device: str | None
    start_ns: int | None
    process: int | None = None
    host: str | None = None
    readable: bool = True


def identify(path: str) -> Identity:
    """Identify the trace at ``path`` by its metadata, its first events and its name."""
    return _described(path)[0]


@once_per_file
def _described(path: str) -> tuple[Identity, dict[str, Any]]:
    """Return the identity of the trace at ``path``, and its metadata without the members of process groups."""
    head, metadata = _around(path)
    return _identity(path, head, metadata), without_members(metadata)


def _identity(path: str, head: bytes, metadata: Mapping[str, Any]) -> Identity:
    found = metadata.get("distributedInfo")
    info = found if isinstance(found, dict) else {}
    devices = metadata.get("deviceProperties")
    device = devices[0].get("name") if isinstance(devices, list) and devices and isinstance(devices[0], dict) else None
    rank = integer(info.get("rank"))
    return Identity(
        path=path,
        rank=rank_of(path) if rank is None else rank,
        world_size=integer(info.get("world_size")),
        device=device if isinstance(device, str) and device else None,
        start_ns=_start_ns(head, integer(metadata.get("baseTimeNanoseconds")) or 0),
        process=process_of(path) or _process(head),
        host=stated_host(metadata) or host_in_name(path),
        readable=bool(head),
    )


def metadata_of(path: str) -> dict[str, Any]:
    """Return the metadata of the trace at ``path``, without the members of process groups.

    Metadata after the events is left out if reading it would require reading the whole file. The result is empty if the
    file is damaged, is not a trace, or can be read only once.
    """
    return dict(_described(path)[1])


def base_ns(path: str) -> int:
    """Return the origin of the times in the trace at ``path``, in ns since 1970, or 0 if the trace does not state
    it.
    """
    return integer(metadata_of(path).get("baseTimeNanoseconds")) or 0


def without_members(metadata: dict[str, Any]) -> dict[str, Any]:
    """Replace the process groups in ``metadata`` with their roles, by name (``pg_roles``). Each trace lists the members
    of all groups, so the groups of all traces together would take space quadratic in the number of ranks."""
    info = metadata.get("distributedInfo")
    if not isinstance(info, dict) or "pg_config" not in info:
        return metadata
    kept = {key: value for key, value in info.items() if key != "pg_config"}
    roles = _roles(info["pg_config"])
    return {**metadata, "distributedInfo": {**kept, "pg_roles": roles} if roles else kept}


def _roles(groups: object) -> dict[str, str]:
    """Return the role of each of ``groups`` that the program described, by name."""
    known = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
    described = ((group.get("pg_name"), group.get("pg_desc")) for group in known[:_MOST_GROUPS])
    return {
        name: role.removeprefix("mesh_")
        for name, role in described
        if isinstance(name, str) and isinstance(role, str) and role not in _NO_ROLES and len(role) <= _LONGEST_ROLE
    }


def _around(path: str) -> tuple[bytes, dict[str, Any]]:
    """Return the beginning of the events of a trace, and its metadata."""
    if reads_once(path):
        return b"", {}
    try:
        with local_copy(path, COMPRESSED_BLOCK) as copy:
            return _of_file(copy)
    except InputError:
        return b"", {}


def _of_file(path: str) -> tuple[bytes, dict[str, Any]]:
    first, last, compressed = _ends(path)
    head = None if compressed else envelope.read_head(first)
    if head is None and (compressed or len(first) == COMPRESSED_BLOCK):
        with ByteStream(path) as stream:
            head, first = envelope.head_of(stream)
        last = first[-_TAIL:] if compressed and last else last
    if head is None:
        return b"", {}
    tail = envelope.read_tail(last, bare=head.bare)
    return first[head.start :], {**head.metadata, **(tail.metadata if tail else {})}


def _ends(path: str) -> tuple[bytes, bytes, bool]:
    """Return the first and the last bytes of a file, and whether it is compressed. The last bytes are empty for a long
    compressed file."""
    try:
        with open(path, "rb") as file:
            first = file.read(COMPRESSED_BLOCK)
            compressed = codec_of(first) is not None
            size = file.seek(0, os.SEEK_END)
            file.seek(-min(size, _TAIL), os.SEEK_END)
            return first, b"" if compressed and size > COMPRESSED_BLOCK else file.read(), compressed
    except OSError:
        return b"", b"", False


def _start_ns(events: bytes, base_ns: int) -> int | None:
    """Return the start of the recording in ns since 1970, from its first events, or None if their clock has no date."""
    from statistics import median

    times = [int(found[1]) for found, _ in zip(_TS.finditer(events), range(_FIRST_TIMES), strict=False)]
    start = int(median(times)) * 1000 + base_ns if times else 0
    return start if start > EARLIEST_DATE_NS else None


def _process(events: bytes) -> int | None:
    """Return the most frequent process ID among the first events. Small numbers are ignored: they belong to device
    lanes.
    """
    numbers = [int(found[1]) for found, _ in zip(_PID.finditer(events), range(_FIRST_TIMES), strict=False)]
    processes = [number for number in numbers if number > _LARGEST_LANE]
    from statistics import mode

    return mode(processes) if processes else None
