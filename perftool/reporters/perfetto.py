"""Writes annotations, and recordings of several ranks, as events of a Chrome trace for Perfetto."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from zlib import crc32

import orjson

from perftool.model.annotations import CATEGORY, RANKS_KEY, Annotations, Counter, Flow, Lane, RankTimeline
from perftool.reporters.json import cleaned

# Perfetto sorts processes by this number. Profilers use -1 and above, so the annotations come first.
_SORT_INDEX = -1_000_000
_EVENTS_PER_BLOCK = 1000
# In a file with several ranks, processes get new numbers: above thread ids, which Linux limits to 2**22, and below
# 2**31 for up to 200,000 ranks.
_FIRST_OF_RANKS, _PER_RANK, _MOST_PROCESSES = 10_000_000, 10_000, 5_000
# Viewers require numeric flow ids. They are computed from the recorded id and the rank; annotations use larger ids.
_RANKS, _IDS = 2**12, 2**40
# Numbers that some profilers write but JSON does not allow; a viewer may reject the file because of them.
_NOT_FINITE = re.compile(r"([:\[,]\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,\]}])", re.IGNORECASE)


@dataclass(frozen=True)
class _Place:
    """Where the annotations of a rank go: the offset of their times in ns, their position among the processes, and the
    id of their first flow."""

    offset_ns: int = 0
    sort_index: int = _SORT_INDEX
    first_flow: int = 1

    def us(self, ns: int) -> orjson.Fragment:
        return _us(ns + self.offset_ns)


_ALONE = _Place()


def render_events(annotations: Annotations) -> Iterator[bytes]:
    """Yield the events as JSON, separated by commas, in large non-empty blocks.

    Times are in microseconds with three decimals, to keep every nanosecond.
    """
    return _blocks(_events(annotations, _ALONE))


def render_ranks(timelines: Iterable[RankTimeline]) -> Iterator[bytes]:
    """Yield, in blocks of JSON, a trace file with the recordings of all ranks, each below its annotations."""
    ranks: list[int] = []
    yield b'{"traceEvents":[\n'
    for place, timeline in enumerate(timelines):
        for number, block in enumerate(_blocks(_of_rank(timeline, place))):
            yield b",\n" + block if place or number else block
        ranks.append(timeline.rank)
    yield b'\n],"%b":%b}' % (RANKS_KEY.encode(), orjson.dumps(ranks))


def _blocks(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    while block := list(islice(events, _EVENTS_PER_BLOCK)):
        yield b",\n".join(orjson.dumps(event) for event in block)


def _of_rank(timeline: RankTimeline, place: int) -> Iterator[dict[str, Any]]:
    """Yield the events of the ``place``-th rank. Its processes follow those of the previous rank and are named after
    it."""
    first, offset = _FIRST_OF_RANKS + place * _PER_RANK, timeline.offset_ns or 0
    shown = timeline.processes[:_MOST_PROCESSES]
    numbers = {pid: first + at for at, pid in enumerate(shown, 1)}
    names = dict.fromkeys(shown, "")
    drawn = replace(timeline.drawn, pid=first + _MOST_PROCESSES + 1)
    yield from _events(drawn, _Place(offset, first, _RANKS * _IDS + place * 1_000_000))
    for ph, cat, name, pid, tid, ts, dur, key, args in timeline.events:
        if pid not in numbers or (ph == "M" and name == "process_sort_index"):
            continue
        event = {"ph": ph, "name": name, "pid": numbers[pid], "tid": _number(tid), "ts": _us((ts or 0) + offset)}
        if ph == "M" and name == "process_name":
            names[pid] = _process_name(args)
            continue
        if cat is not None:
            event["cat"] = cat
        if dur is not None:
            event["dur"] = _us(dur)
        if key is not None:
            event["id"] = _id(key) * _RANKS + place % _RANKS
        if ph == "f":
            event["bp"] = "e"
        if args is not None and (readable := _readable(args)):
            event["args"] = orjson.Fragment(readable)
        yield event
    for pid, number in numbers.items():
        yield _process("process_name", number, name=f"rank {timeline.rank}: {names[pid] or pid}")
        yield _process("process_sort_index", number, sort_index=number)


def _process(event: str, pid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": pid, "tid": 0, "ts": 0, "args": args}


def _process_name(args: str | None) -> str:
    found = _parsed(args or "{}")
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def _readable(args: str) -> str | None:
    """Make ``args`` a JSON object that viewers accept. Return None if it is not an object."""
    if not _NOT_FINITE.search(args):
        return args if args.startswith("{") else None
    # If the match was inside a string, ``args`` was already valid.
    for form in (args, _NOT_FINITE.sub(r"\1null", args)):
        if isinstance(_parsed(form), dict):
            return form
    return None


def _parsed(text: str) -> Any:
    """Parse ``text``. Return None if it is not JSON or is nested too deeply."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _number(text: str | None) -> int | str:
    """Return the number of a thread or stream if it has one, otherwise its recorded name."""
    return int(text) if text and text.isdecimal() and len(text) < 10 else text or 0


def _id(text: str) -> int:
    """Turn the id of a flow or an asynchronous event into a number that depends only on its text."""
    return int(text) % _IDS if text.isdecimal() and len(text) < 20 else crc32(text.encode())


def _events(annotations: Annotations, place: _Place) -> Iterator[dict[str, Any]]:
    pid = annotations.pid
    yield _name("process_name", pid, 0, name=f"perftool (rank {annotations.rank})")
    yield _name("process_sort_index", pid, 0, sort_index=place.sort_index)
    for counter in annotations.counters:
        yield from _counter(counter, pid, place)
    for tid, lane in enumerate(annotations.lanes, pid + 1):
        yield _name("thread_name", pid, tid, name=lane.name)
        yield _name("thread_sort_index", pid, tid, sort_index=tid - pid)
        yield from _lane(lane, pid, tid, place)
    for number, flow in enumerate(annotations.flows, place.first_flow):
        yield from _flow(flow, number, pid, place)


def _lane(lane: Lane, pid: int, tid: int, place: _Place) -> Iterator[dict[str, Any]]:
    """Yield the lane as begin and end events. With a start and a duration for each slice, rounding could make slices
    overlap."""
    where = {"pid": pid, "tid": tid}
    open_ends: list[int] = []
    for mark in lane.marks:
        while open_ends and open_ends[-1] <= mark.ts_ns:
            yield {"cat": CATEGORY, "ph": "E", **where, "ts": place.us(open_ends.pop())}
        begin = {"cat": CATEGORY, "ph": "B", "name": mark.name, **where, "ts": place.us(mark.ts_ns)}
        yield {**begin, "args": cleaned({key: value for key, value in mark.args.items() if value is not None})}
        open_ends.append(mark.ts_ns + mark.dur_ns)
    for end in reversed(open_ends):
        yield {"cat": CATEGORY, "ph": "E", **where, "ts": place.us(end)}


def _flow(flow: Flow, number: int, pid: int, place: _Place) -> Iterator[dict[str, Any]]:
    """Yield an arrow between two slices, which are identified by their tracks and start times."""
    shared = {"cat": CATEGORY, "name": "critical path", "id": number, "pid": pid}
    yield {**shared, "ph": "s", "tid": pid + 1 + flow.source, "ts": place.us(flow.source_ts_ns)}
    yield {**shared, "ph": "f", "bp": "e", "tid": pid + 1 + flow.target, "ts": place.us(flow.target_ts_ns)}


def _counter(counter: Counter, pid: int, place: _Place) -> Iterator[dict[str, Any]]:
    for sample in counter.samples:
        yield {
            "cat": CATEGORY, "ph": "C", "name": counter.name, "pid": pid, "tid": pid,
            "ts": place.us(sample.ts_ns), "args": sample.values,
        }  # fmt: skip


def _name(event: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"cat": CATEGORY, "ph": "M", "name": event, "pid": pid, "tid": tid, "ts": 0, "args": args}


def shown_ns(ns: int) -> int:
    """Round ``ns`` as Perfetto does: version 52 reads microseconds as a double."""
    return int(float(_text(ns)) * 1000 + 0.5)


def _us(ns: int) -> orjson.Fragment:
    """Write ``ns`` as microseconds with three decimals; a double would round times since 1970."""
    return orjson.Fragment(_text(ns).encode())


def _text(ns: int) -> str:
    sign, size = "-" if ns < 0 else "", abs(ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}"
