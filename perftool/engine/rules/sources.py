"""The lines of the user's code behind what a rule found: where the host was during the time at stake."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from perftool.model.own_code import INSTALLED_KEY, Line, innermost, is_own
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore

MOST_SOURCES = 3
# Causes of idle time for which the host's own Python is what takes the time, and not one call in it.
_HOST_CAUSES = {"python", "between_ops", "unknown", "framework_op", "autograd"}
# A function that one call of another calls more often than this is the body of its loop: the loop is the place.
_LOOP = 16
_SMALLEST_SHARE = 0.01
# Of a rule's rows; each takes a walk through the stacks.
_MOST_PLACED = 100
_FRAMES = """
SELECT f.track, f.file, f.line, f.function, f.call_line, f.stack, f.ts, f."end"
FROM frames AS f JOIN feeding_tracks AS t ON t.track = f.track
WHERE f.rank = $rank AND f."end" > f.ts ORDER BY f.track, f.ts, f."end" DESC, f.id
"""
_IDLE = 'SELECT ts, "end" FROM gap_causes WHERE rank = $rank AND list_contains($causes, cause)'
_LAUNCHED = """
SELECT d.ts AS device_ts, s.ts, s."end" FROM device_ops AS d JOIN slices AS s ON s.id = d.launch
WHERE d.rank = $rank AND list_contains($times, d.ts)
"""

# A stretch of a track: start, end, the line it runs, and the line whose loop it is part of.
Stretch = tuple[int, int, Line, Line]
# A call: start, end, the line of the user's own that it stands for (None: it is none of theirs), and the line of the
# user's own that made it.
Call = tuple[int, int, Line | None, int | None]
Interval = tuple[int, int]

_NOWHERE: Line = (None, None, "")

_known: WeakKeyDictionary[TraceStore, dict[int, list[list[Stretch]]]] = WeakKeyDictionary()


def add_sources(store: TraceStore, rule: Rule, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """``rows`` with a column ``sources`` (file, line, function, ns, share), the heaviest first, where stacks tell.

    The time at stake is the idle time that the rule explains where that is the host's Python; else the slices that a
    row names, those of the device by the call that launched them.
    """
    if rule.scope != "rank" or not rows or not store.has_rows("frames"):
        return list(rows)
    placed = [{**row, "sources": _sources(store, rule, row)} for row in rows[:_MOST_PLACED]]
    return [*placed, *rows[_MOST_PLACED:]]


def _sources(store: TraceStore, rule: Rule, row: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    rank = row.get("rank")
    if rank is None:
        return ()
    wanted = rule.explains if rule.explains or rule.relieves != "host" else _HOST_CAUSES
    causes = sorted(_HOST_CAUSES.intersection(wanted))
    idle = [(at["ts"], at["end"]) for at in store.select(_IDLE, {"rank": rank, "causes": causes})] if causes else []
    stake = _united(idle or _named(store, rank, row))
    tracks = _stretches(store, rank)
    spent: Counter[Line] = Counter()
    for track in tracks:
        spent.update(_overlap(track, stake, loops=bool(idle)))
    if idle and not spent:
        # Ops alone were recorded with stacks: the line that calls the next op is where the time before it went.
        for track in tracks:
            spent.update(_next_lines(track, stake))
    whole = sum(end - ts for ts, end in stake)
    heaviest = sorted(spent.items(), key=lambda item: (-item[1], str(item[0])))[:MOST_SOURCES]
    return tuple(
        {"file": file, "line": line, "function": function, "ns": ns, "share": min(1.0, ns / whole)}
        for (file, line, function), ns in heaviest
        if ns >= _SMALLEST_SHARE * whole
    )


def _named(store: TraceStore, rank: int, row: Mapping[str, Any]) -> list[Interval]:
    """The intervals of ``row`` on the host."""
    places = row.get("related") or [row]
    spans = {place["ts"]: place.get("dur") or 1 for place in places if place.get("ts") is not None}
    store.build(["device_ops"])
    calls = store.select(_LAUNCHED, {"rank": rank, "times": list(spans)})
    launched = {call["device_ts"]: (call["ts"], call["end"]) for call in calls}
    return [launched.get(ts, (ts, ts + dur)) for ts, dur in spans.items()]


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    """The time that ``intervals`` cover, each part of it once."""
    united: list[Interval] = []
    for ts, end in sorted(intervals):
        if united and ts <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((ts, end))
    return united


def _stretches(store: TraceStore, rank: int) -> list[list[Stretch]]:
    known = _known.setdefault(store, {})
    if rank not in known:
        store.build(["frames", "feeding_tracks"])
        rows = store.select(_FRAMES, {"rank": rank})
        told = store.metadata.get(rank, {}).get(INSTALLED_KEY)
        installed = {name for name in told if isinstance(name, str)} if isinstance(told, list) else set()
        by_track: dict[int, list[Call]] = {}
        for row, line in zip(rows, _lines(rows, installed), strict=True):
            if line is not None or row["call_line"] is not None:
                by_track.setdefault(row["track"], []).append((row["ts"], row["end"], line, row["call_line"]))
        known[rank] = [_nested(calls) for calls in by_track.values()]
    return known[rank]


def _lines(rows: Sequence[Mapping[str, Any]], installed: Collection[str]) -> list[Line | None]:
    """The line of the user's own that each row stands for; modules where no row has a line of the user's own."""
    kept: dict[tuple[Any, ...], Line | None] = {}
    for row in rows:
        key = (row["file"], row["line"], row["function"], row["stack"])
        if key not in kept:
            kept[key] = _line(row, installed)
    lines = [kept[row["file"], row["line"], row["function"], row["stack"]] for row in rows]
    if any(line is not None for line in lines):
        return lines
    return [(None, None, row["function"]) if row["function"].startswith("nn.Module: ") else None for row in rows]


def _line(row: Mapping[str, Any], installed: Collection[str]) -> Line | None:
    if row["stack"] is not None:
        return innermost(row["stack"], installed)
    own = row["file"] is not None and is_own(row["file"], installed)
    return (row["file"], row["line"], row["function"]) if own else None


def _nested(calls: Sequence[Call]) -> list[Stretch]:
    """The stretches in which each of ``calls``, sorted as they nest, is the innermost one."""
    parents, pieces = _innermost(calls)
    lines: list[Line] = []
    for (_, _, line, called_at), parent in zip(calls, parents, strict=True):
        lines.append(line or _at(lines[parent] if parent >= 0 else None, called_at))
    often = Counter((parent, line) for line, parent in zip(lines, parents, strict=True))
    loops: list[Line] = []
    for number, parent in enumerate(parents):
        line, called_at = calls[number][2:]
        if parent >= 0 and loops[parent] != lines[parent]:
            loops.append(loops[parent])
        elif parent >= 0 and line is not None and often[parent, line] > _LOOP:
            loops.append(_at(loops[parent], called_at))
        else:
            loops.append(lines[number])
    return [(ts, end, lines[at], loops[at]) for ts, end, at in pieces if lines[at] != _NOWHERE]


def _at(function: Line | None, line: int | None) -> Line:
    """``function`` at one of its lines, where that is known."""
    if function is None or function[0] is None:
        return function or _NOWHERE
    return function[0], line or function[1], function[2]


def _innermost(calls: Sequence[Call]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """In which other each of ``calls`` lies (-1: in none), and stretches of time with the innermost call of each."""
    parents: list[int] = []
    pieces: list[tuple[int, int, int]] = []
    around: list[int] = []
    at = 0

    def run_to(moment: int) -> int:
        if moment > at:
            pieces.append((at, moment, around[-1]))
        return max(at, moment)

    for number, (ts, *_) in enumerate(calls):
        while around and calls[around[-1]][1] <= ts:
            at = run_to(calls[around[-1]][1])
            around.pop()
        at = run_to(ts) if around else ts
        parents.append(around[-1] if around else -1)
        around.append(number)
    while around:
        at = run_to(calls[around[-1]][1])
        around.pop()
    return parents, pieces


def _next_lines(track: Sequence[Stretch], stake: Sequence[Interval]) -> Counter[Line]:
    """How much of ``stake``, in ns, comes right before each line of a track."""
    spent: Counter[Line] = Counter()
    begins = [stretch[0] for stretch in track]
    for ts, end in stake:
        at = bisect_left(begins, end)
        if at < len(track):
            spent[track[at][2]] += end - ts
    return spent


def _overlap(track: Sequence[Stretch], stake: Sequence[Interval], *, loops: bool) -> Counter[Line]:
    """How long each line runs during ``stake``, in ns; with ``loops`` the line whose loop it belongs to."""
    spent: Counter[Line] = Counter()
    ends = [stretch[1] for stretch in track]
    for ts, end in stake:
        for begun, ended, line, loop in islice(track, bisect_right(ends, ts), None):
            if begun >= end:
                break
            spent[loop if loops else line] += min(end, ended) - max(ts, begun)
    return spent
