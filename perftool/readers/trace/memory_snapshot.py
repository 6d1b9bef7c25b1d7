"""Converts a snapshot of PyTorch's CUDA allocator, saved as JSON, to the events that ``profile_memory=True`` writes.

``torch.cuda.memory._snapshot()`` returns the allocator's current segments, and all allocations and releases since
``torch.cuda.memory._record_memory_history()``. Totals are computed backwards from the segments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from perftool.errors import InputError
from perftool.readers.files.stream import ByteStream, reads_once, whole
from perftool.readers.text.bounded_json import parsed
from perftool.readers.text.json_values import number
from perftool.readers.trace.envelope import holds_events, top_keys

_KEYS = {"segments", "device_traces"}
CONVERT = (
    "refused: a pickled memory snapshot; save it as JSON: json.dump(torch.cuda.memory._snapshot(), f, default=str)"
)
_PICKLE = b"\x80"
_HEAD = 4096
# How actions change the allocated and the reserved bytes, in multiples of the action's size. A release counts from its
# request.
_ALLOCATED = {"alloc": 1, "free_requested": -1}
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_MOST_FRAMES = 64
_MOST_SIZE = 2**53
_number = partial(number, below=2**63, signed=True)
# The Python values of a snapshot need ten times the memory of its text.
_MOST = 256 << 20


def is_snapshot(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a snapshot written as JSON."""
    return any(key.encode() in head for key in _KEYS) and bool(_KEYS.intersection(top_keys(head)))


def is_snapshot_file(path: str) -> bool:
    """Whether the file at ``path`` is a snapshot written as JSON."""
    return not reads_once(path) and is_snapshot(_head(path)) and _parsed(path) is not None


def is_pickled_snapshot(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a snapshot written by ``_dump_snapshot``."""
    return head.startswith(_PICKLE) and b"segments" in head


@contextmanager
def snapshot_as_trace(path: str) -> Iterator[str]:
    """Provide a file with the trace in ``path``: the file itself or, for a snapshot, its history as a trace.

    Raise InputError for a snapshot that is pickled or has no history.
    """
    head = b"" if reads_once(path) else _head(path)
    if is_pickled_snapshot(head):
        raise InputError(f"{path}: {CONVERT}")
    if not is_snapshot(head):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="perftool-") as folder:
        copy = Path(folder) / "memory_snapshot.json"
        yield str(copy) if write_trace(path, copy) else path


def _head(path: str) -> bytes:
    with ByteStream(path) as stream:
        return stream.head(_HEAD)


def _parsed(path: str) -> Any:
    """Return the snapshot at ``path``, or None for a trace. Raise InputError for damaged JSON."""
    data = whole(path, _MOST, "a memory snapshot; record fewer events with max_entries")
    if holds_events(data):
        return None
    try:
        return parsed(data)
    except ValueError as error:
        raise InputError(f"{path}: damaged memory snapshot ({error})") from None


def write_trace(path: str, place: Path) -> bool:
    """Write the snapshot at ``path`` as a trace to ``place``. If the file is already a trace, write nothing and return
    False.

    Raise InputError if the snapshot is damaged or has no history.
    """
    snapshot = _parsed(path)
    if snapshot is None:
        return False
    traces = snapshot.get("device_traces") if isinstance(snapshot, dict) else None
    if not isinstance(traces, list) or not any(traces):
        raise InputError(
            f"{path}: a memory snapshot without a history; call torch.cuda.memory._record_memory_history() first"
        )
    segments = _segments(snapshot)
    events = (
        event for device, entries in enumerate(traces) for event in _events(device, entries, segments.get(device, ()))
    )
    with place.open("wb") as file:
        file.write(b'{"traceEvents":[')
        # Write events one by one, because all of them together may need sixty times the memory of the entries.
        for number, event in enumerate(events):
            file.write((b"," if number else b"") + orjson.dumps(event))
        file.write(b"]}")
    return True


def _segments(snapshot: Mapping[str, Any]) -> dict[int, list[Mapping[str, Any]]]:
    """Return the segments of the allocator, by device index."""
    found = snapshot.get("segments")
    segments: dict[int, list[Mapping[str, Any]]] = {}
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and isinstance(device := one.get("device"), int):
            segments.setdefault(device, []).append(one)
    return segments


def _events(device: int, entries: Any, segments: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    listed = entries if isinstance(entries, list) else []
    actions = [one for one in listed if isinstance(one, dict) and isinstance(one.get("action"), str)]
    allocated = sum(_size(one.get("allocated_size")) for one in segments)
    reserved = sum(_size(one.get("total_size")) for one in segments)
    # The segments show the totals at the end. Subtract all actions to get the totals at the start.
    allocated -= sum(_ALLOCATED.get(one["action"], 0) * _size(one.get("size")) for one in actions)
    reserved -= sum(_RESERVED.get(one["action"], 0) * _size(one.get("size")) for one in actions)
    for position, one in enumerate(actions):
        action, size = one["action"], _size(one.get("size"))
        reserved += _RESERVED.get(action, 0) * size
        if action not in _ALLOCATED:
            continue
        bytes_ = _ALLOCATED[action] * size
        allocated += bytes_
        args = {
            "Device Type": 1,
            "Device Id": device,
            "Addr": _number(one.get("addr")),
            "Bytes": bytes_,
            "Total Allocated": _number(allocated),
            "Total Reserved": _number(reserved),
            "Call stack": _stack(one.get("frames")),
        }
        # PyTorch 2.0 and earlier did not write times.
        place = {"pid": "allocator", "tid": device, "ts": _number(one.get("time_us", position))}
        yield {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", **place, "args": args}


def _stack(frames: Any) -> str:
    """Return the Python frames, innermost first, in the profiler's format."""
    valid = [one for one in frames[:_MOST_FRAMES] if isinstance(one, dict)] if isinstance(frames, list) else []
    return ";".join(f"{one['filename']}({one['line']}): {one['name']}" for one in valid if _is_python(one))


def _is_python(frame: Mapping[str, Any]) -> bool:
    file, name = frame.get("filename"), frame.get("name")
    # A malformed name may be a deeply nested list, which cannot be converted to text.
    typed = isinstance(file, str) and isinstance(frame.get("line"), int) and isinstance(name, str)
    return typed and str(file).endswith(".py")


def _size(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MOST_SIZE else 0
