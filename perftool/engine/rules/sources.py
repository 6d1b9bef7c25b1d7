"""The lines of the user's code behind what a rule found: where the host was during the time at stake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perftool.engine.rules.stretches import Ran, lines_run
from perftool.model.rule import Rule
from perftool.store.trace_store import TraceStore

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

MOST_SOURCES = 3
# Causes of idle time for which the host's own Python is what takes the time, and not one call in it.
_HOST_CAUSES = {"python", "between_ops", "unknown", "framework_op", "autograd"}
_SMALLEST_SHARE = 0.01
_LONGEST_NS, _LAST_NS = 2**53, 2**62
# Of a rule's rows; each takes a walk through the stacks.
_MOST_PLACED = 100
_IDLE = 'SELECT ts, "end" FROM gap_causes WHERE rank = $rank AND list_contains($causes, cause)'
_LAUNCHED = """
SELECT d.ts AS device_ts, s.ts, s."end" FROM device_ops AS d JOIN slices AS s ON s.id = d.launch
WHERE d.rank = $rank AND list_contains($times, d.ts)
"""


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
    idle = _idle(store, rank, causes) if causes else None
    begins, ends = idle or _united(_named(store, rank, row))
    ran = lines_run(store, rank)
    spent = _overlap(ran, begins, ends, loops=idle is not None)
    if idle and not spent.any():
        # Ops alone were recorded with stacks: the line that calls the next op is where the time before it went.
        spent = _before_lines(ran, begins, ends)
    whole = int((ends - begins).sum())
    told = [(int(ns), line) for ns, line in zip(spent, ran.lines, strict=True) if ns]
    heaviest = sorted(told, key=lambda item: (-item[0], str(item[1])))[:MOST_SOURCES]
    return tuple(
        {"file": file, "line": line, "function": function, "ns": ns, "share": min(1.0, ns / whole)}
        for ns, (file, line, function) in heaviest
        if ns >= _SMALLEST_SHARE * whole
    )


def _idle(store: TraceStore, rank: int, causes: Sequence[str]) -> tuple[Int64s, Int64s] | None:
    """The idle time of ``rank`` with one of ``causes``; None where there is none."""
    import numpy as np

    store.build(["gap_causes"])
    found = store.arrays(_IDLE, {"rank": rank, "causes": list(causes)})
    ts, end = np.asarray(found["ts"]), np.asarray(found["end"])
    return _united(np.stack([ts, end], axis=1)) if len(ts) else None


def _named(store: TraceStore, rank: int, row: Mapping[str, Any]) -> Int64s:
    """The intervals of ``row`` on the host, one in each row of the array."""
    import numpy as np

    places = row.get("related") or [row]
    spans = {place["ts"]: place.get("dur") or 1 for place in places if place.get("ts") is not None}
    store.build(["device_ops"])
    calls = store.select(_LAUNCHED, {"rank": rank, "times": list(spans)})
    launched = {call["device_ts"]: (call["ts"], call["end"]) for call in calls}
    intervals = [launched.get(ts, (ts, ts + dur)) for ts, dur in spans.items()]
    # Rules that others wrote may name times that sums of 64 bits do not hold.
    possible = [(ts, end) for ts, end in intervals if 0 < end - ts <= _LONGEST_NS and -_LAST_NS < ts < end < _LAST_NS]
    return np.array(possible, dtype=np.int64).reshape(-1, 2)


def _united(intervals: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends of the time that ``intervals`` cover, each part of it once, in order."""
    import numpy as np

    ordered = intervals[np.lexsort((intervals[:, 1], intervals[:, 0]))]
    reach = np.maximum.accumulate(ordered[:, 1])
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:, 0] > reach[:-1]
    last = np.ones(len(ordered), dtype=bool)
    last[:-1] = first[1:]
    return ordered[first, 0], reach[last]


def _overlap(ran: Ran, begins: Int64s, ends: Int64s, *, loops: bool) -> Int64s:
    """How long each line of ``ran`` runs in the time from ``begins`` to ``ends``, in ns.

    With ``loops`` it is the line whose loop it belongs to that runs.
    """
    import numpy as np

    before = np.concatenate(([0], np.cumsum(ends - begins)))

    def until(moments: Int64s) -> Int64s:
        """How much of that time lies before each of ``moments``."""
        at = np.searchsorted(begins, moments, side="right")
        inside = np.maximum(at - 1, 0)
        passed: Int64s = np.where(at > 0, before[inside] + np.minimum(moments, ends[inside]) - begins[inside], 0)
        return passed

    spent = np.zeros(len(ran.lines), dtype=np.int64)
    if len(begins):
        for track in ran.tracks:
            np.add.at(spent, track.loops if loops else track.lines, until(track.ends) - until(track.begins))
    return spent


def _before_lines(ran: Ran, begins: Int64s, ends: Int64s) -> Int64s:
    """How much of the time from ``begins`` to ``ends``, in ns, comes right before each line of a track of ``ran``."""
    import numpy as np

    spent = np.zeros(len(ran.lines), dtype=np.int64)
    for track in ran.tracks:
        at = np.searchsorted(track.begins, ends)
        known = at < len(track.begins)
        np.add.at(spent, track.lines[at[known]], (ends - begins)[known])
    return spent
