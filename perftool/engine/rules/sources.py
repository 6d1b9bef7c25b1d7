"""Finds the lines of the user's code that caused a finding: those that the host ran during the lost time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perftool.engine.rules.shared_time import WITHIN
from perftool.engine.rules.stretches import NOWHERE, FeedingLines, lines_run
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

Row = Mapping[str, Any]
# Has the keys file, line, function, ns and share.
Source = dict[str, Any]
MOST_SOURCES = 3
# Columns used only to find sources and overlaps: lists of {ts, dur}.
EVIDENCE_OF_PLACE = frozenset({"places", "host_time", "host_calls", WITHIN})
# Causes of idle time that are due to the host's Python code rather than to a single call.
_HOST_CAUSES = {"python", "between_ops", "unknown", "framework_op", "autograd"}
_SMALLEST_SHARE = 0.01
# A function is named only if its share of the time is larger.
_MOSTLY = 0.5
# A function with a larger share of the recorded time is the whole program or its main loop.
_EVERYWHERE = 0.9
_LONGEST_NS, _LAST_NS = 2**53, 2**62
# The maximum number of a rule's rows that get sources, because each row requires a pass over the stacks.
_MOST_PLACED = 100
_IDLE = 'SELECT ts, "end" FROM gap_causes WHERE rank = $rank AND list_contains($causes, cause)'
_LAUNCHED = """
SELECT d.ts AS device_ts, s.track, s.ts, s."end" FROM device_ops AS d JOIN slices AS s ON s.id = d.launch
WHERE d.rank = $rank AND d.ts IN (SELECT unnest($times)) ORDER BY d.id
"""
# Work of the backward pass is caused by the line that runs the forward op, not by the line that starts the pass.
_CAUSED = f"""
WITH functions AS (SELECT track, ts, "end", op_ts FROM _differentiated WHERE rank = $rank AND op IS NOT NULL)
SELECT l.device_ts, CASE WHEN l.ts < f."end" THEN f.op_ts ELSE l.ts END AS ts
FROM ({_LAUNCHED}) AS l ASOF LEFT JOIN functions AS f ON f.track = l.track AND l.ts >= f.ts ORDER BY l.device_ts, ts
"""


def add_sources(store: TraceStore, rule: Rule, rows: Sequence[Row]) -> list[Row]:
    """Add ``sources`` (file, line, function, ns, share), longest time first, to ``rows`` if stacks were recorded.

    The sources are the first of these that are known: the lines that make the calls in the column ``host_calls``; the
    lines that ran during the time in the column ``host_time``; the lines that ran during idle time that the rule
    attributes to the host's Python code; the lines that launched the device work in the column ``places``; the lines
    that ran or launched the slices of the row. These columns are removed. A row that already has sources keeps them.
    """
    if rule.scope != "rank" or not rows or not store.has_rows("frames"):
        return [_unplaced(row) for row in rows]
    placed = rows[:_MOST_PLACED]
    found: dict[int, tuple[Source, ...]] = {}
    for rank in {rank for row in placed if (rank := row.get("rank")) is not None}:
        of_rank = [at for at, row in enumerate(placed) if row.get("rank") == rank]
        found.update(zip(of_rank, _sources(store, rule, rank, [placed[at] for at in of_rank]), strict=True))
    located = ({**_unplaced(row), "sources": row.get("sources") or found.get(at, ())} for at, row in enumerate(placed))
    return [*located, *map(_unplaced, rows[_MOST_PLACED:])]


def mostly_in(store: TraceStore, rank: int, spans: Sequence[tuple[int, int]]) -> str:
    """Return the user's function that ran for more than half of ``spans`` (in ns), and its file. The result is empty if
    the function is unknown.
    """
    if not store.has_rows("frames"):
        return ""
    ran = _heaviest(lines_run(store, rank), *_united(_array(spans)), idle=False)
    function, share = _longest(ran)
    return function if share > _MOSTLY else ""


def launching_lines(store: TraceStore, rank: int, places: Sequence[Mapping[str, int]]) -> tuple[Source, ...]:
    """Return the lines of the user's code that launched the largest shares of the work in ``places`` (ts and dur), by
    time, or none if the recording has no stacks. A backward pass counts for the line that ran the forward pass."""
    return _launching(store, rank, lines_run(store, rank), places) if store.has_rows("frames") else ()


def longest_function(ran: Iterable[tuple[str | None, str, float]]) -> tuple[str, float]:
    """Return the function with the most time, from entries (file, function, time): its name and file name as text, and
    its time. The text is empty, and the time 0, if no function has a file.
    """
    times: dict[tuple[str, str], float] = {}
    for file, function, time in ran:
        if file:
            times[file, function] = times.get((file, function), 0) + time
    if not times:
        return "", 0.0
    (file, function), time = max(times.items(), key=lambda item: item[1])
    return f"{function} ({file.rsplit('/', 1)[-1]})", time


def _longest(lines: Iterable[Source]) -> tuple[str, float]:
    """Return the ``longest_function`` of ``lines``, with its share instead of its time."""
    return longest_function((one["file"], one["function"], one["share"]) for one in lines)


def _unplaced(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in EVIDENCE_OF_PLACE}


def _sources(store: TraceStore, rule: Rule, rank: int, rows: Sequence[Row]) -> list[tuple[Source, ...]]:
    """For each of ``rows``, which ``rule`` found on ``rank``, return the sources."""
    if any("host_time" in row for row in rows):
        spans = [[(place["ts"], place["ts"] + place["dur"]) for place in row["host_time"] or ()] for row in rows]
        ran = lines_run(store, rank)
        return [
            _calling(ran, row.get("host_calls") or ()) or _heaviest(ran, *_united(_array(one)), idle=False)
            for row, one in zip(rows, spans, strict=True)
        ]
    wanted = rule.explains if rule.explains or rule.relieves != "host" else _HOST_CAUSES
    causes = sorted(_HOST_CAUSES.intersection(wanted))
    if causes and (idle := _idle(store, rank, causes)):
        return [_heaviest(lines_run(store, rank), *idle, idle=True)] * len(rows)
    named = _named(store, rank, rows)
    ran = lines_run(store, rank)
    return [
        _launching(store, rank, ran, row["places"])
        if row.get("places")
        else _heaviest(ran, *_united(spans), idle=False)
        for row, spans in zip(rows, named, strict=True)
    ]


def _calling(ran: FeedingLines, calls: Sequence[Mapping[str, int]]) -> tuple[Source, ...]:
    """Return the lines of code that make the longest ``calls`` (ts and dur), or none if most calls come from other
    code.
    """
    import numpy as np

    moments = np.array([call["ts"] for call in calls], dtype=np.int64)
    lengths = np.array([call["dur"] for call in calls], dtype=np.int64)
    lines = _shares(ran, _spent_from(ran, moments, lengths), int(lengths.sum()))
    return lines if _longest(lines)[1] > _MOSTLY else ()


def _launching(
    store: TraceStore, rank: int, ran: FeedingLines, places: Sequence[Mapping[str, int]]
) -> tuple[Source, ...]:
    """Return the lines of code that caused the most device time of the work in ``places``."""
    import numpy as np

    took = {place["ts"]: place["dur"] for place in places}
    calls = store.select(_CAUSED, {"rank": rank, "times": list(took)})
    moments = np.array([call["ts"] for call in calls], dtype=np.int64)
    lengths = np.array([took[call["device_ts"]] for call in calls], dtype=np.int64)
    return _shares(ran, _spent_from(ran, moments, lengths), int(lengths.sum()))


def _spent_from(ran: FeedingLines, moments: Int64s, lengths: Int64s) -> Int64s:
    """Return the sum of ``lengths`` by line of code: each length counts for the line that runs at the same entry of
    ``moments``."""
    import numpy as np

    spent = np.zeros(len(ran.lines), dtype=np.int64)
    for track in ran.tracks:
        at = np.searchsorted(track.begins, moments, side="right") - 1
        runs = (at >= 0) & (moments < track.ends[np.maximum(at, 0)])
        np.add.at(spent, track.lines[at[runs]], lengths[runs])
    return spent


def _heaviest(ran: FeedingLines, begins: Int64s, ends: Int64s, *, idle: bool) -> tuple[Source, ...]:
    """Return the lines of code with the most time in the intervals from ``begins`` to ``ends``. ``idle`` says whether
    the device is idle in these intervals."""
    spent = _overlap(ran, begins, ends, loops=idle)
    if idle and not spent.any():
        # If only ops have stacks, the time before an op is attributed to the line that calls the op.
        spent = _before_lines(ran, begins, ends)
    whole = int((ends - begins).sum())
    lines = _shares(ran, spent, whole)
    if _longest(lines)[1] > _MOSTLY:
        return lines
    around = _around(ran, begins, ends, whole)
    if around is None:
        return lines
    # If the lines of calls are unknown, the self time of a function is also placed at the function's line.
    others = [one for one in lines if any(one[key] != around[key] for key in ("file", "line", "function"))]
    return around, *others[: MOST_SOURCES - 1]


def _around(ran: FeedingLines, begins: Int64s, ends: Int64s, whole: int) -> Source | None:
    """Return the function to name for the intervals from ``begins`` to ``ends``, whose total length is ``whole`` ns:
    the innermost function that contains the functions with most of the time in these intervals. A function that
    contains nearly all of the recorded time, such as the main function, is not named. In that case, the innermost
    function whose calls contain most of the intervals is tried; the result is None if that function cannot be named
    either.
    """
    import numpy as np

    if not ran.tree or not whole:
        return None
    spent = np.zeros(len(ran.tree), dtype=np.int64)
    recorded = np.zeros(len(ran.tree), dtype=np.int64)
    until = _elapsed(begins, ends)
    for track in ran.tracks:
        np.add.at(spent, track.nodes, until(track.ends) - until(track.begins))
        np.add.at(recorded, track.nodes, track.ends - track.begins)
    common = _common_caller(ran, spent, whole)
    # Add the time of each function to its caller. Callees follow their callers, so this loop runs backwards.
    for number in range(len(ran.tree) - 1, -1, -1):
        if (caller := ran.tree[number][0]) >= 0:
            spent[caller] += spent[number]
            recorded[caller] += recorded[number]
    most = np.flatnonzero(spent > _MOSTLY * whole)
    tried = (common, *map(int, most[-1:]))
    number = next((one for one in tried if one >= 0 and recorded[one] <= _EVERYWHERE * recorded.max()), -1)
    file, line, function = ran.tree[number][1] if number >= 0 else NOWHERE
    if file is None:
        return None
    ns = int(spent[number])
    return {"file": file, "line": line, "function": function, "ns": ns, "share": min(1.0, ns / whole)}


def _common_caller(ran: FeedingLines, spent: Int64s, whole: int) -> int:
    """Return the index, in the tree, of the innermost function that contains the heaviest functions: those with the
    most self time, until they add up to most of ``whole``. The index is -1 if there is no such function. ``spent`` is
    the self time of each function in ns.
    """
    import numpy as np

    common: list[int] = []
    left = _MOSTLY * whole
    for heaviest in np.argsort(-spent, kind="stable"):
        if left < 0 or not spent[heaviest]:
            break
        left -= spent[heaviest]
        callers = [number := int(heaviest)]
        while (number := ran.tree[number][0]) >= 0:
            callers.append(number)
        common = [one for one in common if one in callers] if common else callers
        if not common:
            return -1
    return common[0] if common and left < 0 else -1


def _shares(ran: FeedingLines, spent: Int64s, whole: int) -> tuple[Source, ...]:
    """Return the lines of code with the most time. ``spent`` contains the time of each line, ``whole`` the total, in
    ns.
    """
    timed = [(int(ns), line) for ns, line in zip(spent, ran.lines, strict=True) if ns]
    heaviest = sorted(timed, key=lambda item: (-item[0], str(item[1])))[:MOST_SOURCES]
    return tuple(
        {"file": file, "line": line, "function": function, "ns": ns, "share": min(1.0, ns / whole)}
        for ns, (file, line, function) in heaviest
        if ns >= _SMALLEST_SHARE * whole
    )


def _idle(store: TraceStore, rank: int, causes: Sequence[str]) -> tuple[Int64s, Int64s] | None:
    """Return the starts and ends of the idle time of ``rank`` due to ``causes``, in ns, or None if there is none."""
    import numpy as np

    store.build(["gap_causes"])
    found = store.arrays(_IDLE, {"rank": rank, "causes": list(causes)})
    ts, end = np.asarray(found["ts"]), np.asarray(found["end"])
    return _united(np.stack([ts, end], axis=1)) if len(ts) else None


def _named(store: TraceStore, rank: int, rows: Sequence[Row]) -> list[Int64s]:
    """Return, for each of ``rows``, the host time of its examples as an array of starts and ends in ns. For device
    work, that is the time of the call that launched it.
    """
    all_spans = [
        {place["ts"]: place.get("dur") or 1 for place in row.get("related") or [row] if place.get("ts") is not None}
        for row in rows
    ]
    store.build(["device_ops"])
    calls = store.select(_LAUNCHED, {"rank": rank, "times": [ts for spans in all_spans for ts in spans]})
    launched = {call["device_ts"]: (call["ts"], call["end"]) for call in calls}
    named = []
    for spans in all_spans:
        intervals = [launched.get(ts, (ts, ts + dur)) for ts, dur in spans.items()]
        # The times that third-party rules return may add up to more than 64 bits can hold.
        possible = [
            (ts, end) for ts, end in intervals if 0 < end - ts <= _LONGEST_NS and -_LAST_NS < ts < end < _LAST_NS
        ]
        named.append(_array(possible))
    return named


def _array(intervals: Sequence[tuple[int, int]]) -> Int64s:
    """Return ``intervals`` as an array with one row per interval."""
    import numpy as np

    return np.array(intervals, dtype=np.int64).reshape(-1, 2)


def _united(intervals: Int64s) -> tuple[Int64s, Int64s]:
    """Return the starts and ends of the union of ``intervals``, in time order."""
    import numpy as np

    ordered = intervals[np.lexsort((intervals[:, 1], intervals[:, 0]))]
    reach = np.maximum.accumulate(ordered[:, 1])
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:, 0] > reach[:-1]
    last = np.ones(len(ordered), dtype=bool)
    last[:-1] = first[1:]
    return ordered[first, 0], reach[last]


def _overlap(ran: FeedingLines, begins: Int64s, ends: Int64s, *, loops: bool) -> Int64s:
    """Return how long each line of code runs in the intervals from ``begins`` to ``ends``, in ns.

    With ``loops``, the time is attributed to the line of the enclosing loop.
    """
    import numpy as np

    spent = np.zeros(len(ran.lines), dtype=np.int64)
    if len(begins):
        until = _elapsed(begins, ends)
        for track in ran.tracks:
            np.add.at(spent, track.loops if loops else track.lines, until(track.ends) - until(track.begins))
    return spent


def _elapsed(begins: Int64s, ends: Int64s) -> Callable[[Int64s], Int64s]:
    """Return a function that computes how much of the intervals from ``begins`` to ``ends`` is before given moments."""
    import numpy as np

    before = np.concatenate(([0], np.cumsum(ends - begins)))

    def until(moments: Int64s) -> Int64s:
        at = np.searchsorted(begins, moments, side="right")
        inside = np.maximum(at - 1, 0)
        elapsed: Int64s = np.where(at > 0, before[inside] + np.minimum(moments, ends[inside]) - begins[inside], 0)
        return elapsed

    return until


def _before_lines(ran: FeedingLines, begins: Int64s, ends: Int64s) -> Int64s:
    """Return the time of the intervals from ``begins`` to ``ends``, in ns, by the line of code that runs next."""
    import numpy as np

    spent = np.zeros(len(ran.lines), dtype=np.int64)
    for track in ran.tracks:
        at = np.searchsorted(track.begins, ends)
        known = at < len(track.begins)
        np.add.at(spent, track.lines[at[known]], (ends - begins)[known])
    return spent
