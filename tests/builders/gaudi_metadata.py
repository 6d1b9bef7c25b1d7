"""The metadata records that name the processes and lanes of a Gaudi trace."""

from __future__ import annotations

from builders.gaudi_event import Event, Value
from builders.gaudi_lanes import SORT_INDEX_OFFSET


def process_records(pid: int, name: str, ts_ns: int) -> list[Event]:
    """Return the bridge's records for one plane: its name, its label and its position in a viewer."""
    sort_index = pid + SORT_INDEX_OFFSET if pid < 8 else pid
    return [
        _record("process_name", pid, 0, {"name": name}, ts_ns),
        _record("process_labels", pid, 0, {"labels": name}, ts_ns),
        _record("process_sort_index", pid, 0, {"sort_index": sort_index}, ts_ns),
    ]


def lane_records(pid: int, tid: int, name: str, ts_ns: int) -> list[Event]:
    """Return the bridge's records for one lane of a plane."""
    return [
        _record("thread_name", pid, tid, {"name": name}, ts_ns),
        _record("thread_sort_index", pid, tid, {"sort_index": -1}, ts_ns),
    ]


def kineto_records(pid: int, program: str, tids: list[int], ts_ns: int) -> list[Event]:
    """Return Kineto's records for the process and the threads of the Python program."""
    records = [
        _record("process_name", pid, 0, {"name": program}, ts_ns),
        _record("process_labels", pid, 0, {"labels": "CPU"}, ts_ns),
        _record("process_sort_index", pid, 0, {"sort_index": pid}, ts_ns),
    ]
    for tid in tids:
        records.append(_record("thread_name", pid, tid, {"name": f"thread {tid} ({program})"}, ts_ns))
        records.append(_record("thread_sort_index", pid, tid, {"sort_index": tid}, ts_ns))
    return records


def kineto_tail(begin_ns: int, end_ns: int) -> list[Event]:
    """Return the profiler's span, the iteration mark, and the closing record with its empty pid and tid."""
    span = {"Op count": 0}
    return [
        Event(
            "X",
            "PyTorch Profiler (0)",
            "Spans",
            "PyTorch Profiler",
            begin_ns,
            end_ns - begin_ns,
            "Trace",
            span,
        ),
        _record("process_sort_index", "Spans", 0, {"sort_index": 536870912}, begin_ns),
        Event(
            "i",
            "Iteration Start: PyTorch Profiler",
            "Traces",
            "Trace PyTorch Profiler",
            begin_ns,
            extra={"s": "g"},
        ),
        Event("i", "Record Window End", "", "", end_ns, extra={"s": "g"}),
    ]


def _record(name: str, pid: int | str, tid: int, args: dict[str, Value], ts_ns: int) -> Event:
    return Event("M", name, pid, tid, ts_ns, args=args, part="meta")
