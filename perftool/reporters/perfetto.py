"""Annotations as events of a Chrome trace, for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson

from perftool.model.annotations import CATEGORY, Annotations, Counter, Flow, Lane
from perftool.reporters.json import cleaned

# Perfetto sorts processes by this. Profilers start at 0, and some write -1 for processes to show on top.
_SORT_INDEX = -1_000_000
_EVENTS_PER_BLOCK = 1000


def render_events(annotations: Annotations) -> Iterator[bytes]:
    """The events as JSON text, separated by commas, in large non-empty blocks.

    Times are in microseconds with three decimals, which keep every nanosecond.
    """
    events = _events(annotations)
    while block := list(islice(events, _EVENTS_PER_BLOCK)):
        yield b",\n".join(orjson.dumps(event) for event in block)


def _events(annotations: Annotations) -> Iterator[dict[str, Any]]:
    pid = annotations.pid
    yield _name("process_name", pid, 0, name=f"perftool (rank {annotations.rank})")
    yield _name("process_sort_index", pid, 0, sort_index=_SORT_INDEX)
    for counter in annotations.counters:
        yield from _counter(counter, pid)
    for tid, lane in enumerate(annotations.lanes, pid + 1):
        yield _name("thread_name", pid, tid, name=lane.name)
        yield _name("thread_sort_index", pid, tid, sort_index=tid - pid)
        yield from _lane(lane, pid, tid)
    for number, flow in enumerate(annotations.flows, 1):
        yield from _flow(flow, number, pid)


def _lane(lane: Lane, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    """Begin and end events: readers' rounding cannot make them overlap, unlike starts and durations."""
    where = {"pid": pid, "tid": tid}
    open_ends: list[int] = []
    for mark in lane.marks:
        while open_ends and open_ends[-1] <= mark.ts_ns:
            yield {"cat": CATEGORY, "ph": "E", **where, "ts": _us(open_ends.pop())}
        begin = {"cat": CATEGORY, "ph": "B", "name": mark.name, **where, "ts": _us(mark.ts_ns)}
        yield {**begin, "args": cleaned({key: value for key, value in mark.args.items() if value is not None})}
        open_ends.append(mark.ts_ns + mark.dur_ns)
    for end in reversed(open_ends):
        yield {"cat": CATEGORY, "ph": "E", **where, "ts": _us(end)}


def _flow(flow: Flow, number: int, pid: int) -> Iterator[dict[str, Any]]:
    """An arrow between two slices, identified by their tracks and start times."""
    shared = {"cat": CATEGORY, "name": "critical path", "id": number, "pid": pid}
    yield {**shared, "ph": "s", "tid": pid + 1 + flow.source, "ts": _us(flow.source_ts_ns)}
    yield {**shared, "ph": "f", "bp": "e", "tid": pid + 1 + flow.target, "ts": _us(flow.target_ts_ns)}


def _counter(counter: Counter, pid: int) -> Iterator[dict[str, Any]]:
    for sample in counter.samples:
        yield {
            "cat": CATEGORY, "ph": "C", "name": counter.name, "pid": pid, "tid": pid,
            "ts": _us(sample.ts_ns), "args": sample.values,
        }  # fmt: skip


def _name(event: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"cat": CATEGORY, "ph": "M", "name": event, "pid": pid, "tid": tid, "ts": 0, "args": args}


def shown_ns(ns: int) -> int:
    """The time that Perfetto shows for ``ns``: it reads microseconds as a double (seen in version 52)."""
    return int(float(_text(ns)) * 1000 + 0.5)


def _us(ns: int) -> orjson.Fragment:
    """Microseconds as text: a double would round the times of a clock that counts from 1970."""
    return orjson.Fragment(_text(ns).encode())


def _text(ns: int) -> str:
    sign, size = "-" if ns < 0 else "", abs(ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}"
