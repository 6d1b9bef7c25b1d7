"""The meetings of the ranks of a run, out of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perftool.replay.limits import ACROSS_NS
from perftool.replay.ranks.meetings import CAUSES, NEVER, Arrivals, Meetings, Stretches
from perftool.replay.recording import NONE, Int64s
from perftool.store.trace_store import TraceStore

# Each costs some ten microseconds, and each arrival at one a hundred bytes.
MOST_MEETINGS, MOST_ARRIVALS = 50_000, 1_000_000
TABLES = ("_collective_matches", "_rank_stretches", "clocks", "windows", "gain_limits")
_RANKS = """
SELECT w.rank, w.ts, w."end", w.steps, c.offset_ns, coalesce(1 - l.device_ratio, 0) AS host_share, l.unsteady
FROM windows AS w JOIN clocks AS c USING (rank) LEFT JOIN gain_limits AS l USING (rank)
WHERE c.offset_ns IS NOT NULL
    AND w.rank IN (SELECT rank FROM _collective_matches WHERE side = 'device' AND ends_together AND step IS NOT NULL)
ORDER BY w.rank
"""
_ARRIVALS = """
WITH placed AS (
    SELECT m.match, m.rank, m.ts, m."end", m.dur, max(m.ts + c.offset_ns) OVER (PARTITION BY m.match) AS met,
           dense_rank() OVER (ORDER BY m.group_name, m.members) AS lane
    FROM _collective_matches AS m JOIN clocks AS c USING (rank)
    WHERE m.side = 'device' AND m.ends_together AND m.step IS NOT NULL AND c.offset_ns IS NOT NULL
)
SELECT rank, ts, "end", dur, lane, dense_rank() OVER (ORDER BY met, match) - 1 AS meeting FROM placed
ORDER BY meeting, rank
"""
_GROUPS = """
SELECT DISTINCT dense_rank() OVER (ORDER BY group_name, members) AS lane, group_name FROM _collective_matches AS m
JOIN clocks AS c USING (rank)
WHERE m.side = 'device' AND m.ends_together AND m.step IS NOT NULL AND c.offset_ns IS NOT NULL
"""
_STRETCHES = f"""
SELECT rank, coalesce(step, {NONE}) AS step, ts, "end", coalesce("end" - held_ns, {NEVER}) AS held_until,
       compute_ns, copy_ns, dataloader_ns, compile_ns, host_ns
FROM _rank_stretches ORDER BY rank, ts
"""


Columns = Mapping[str, Any]


def read_meetings(store: TraceStore) -> Meetings | str:
    """The meetings of the ranks of ``store``, or one sentence why their steps are not replayed together."""
    store.build(TABLES)
    ranks = store.arrays(_RANKS, {})
    reason = _why_not(store, ranks)
    if reason:
        return reason
    found = store.arrays(_ARRIVALS, {})
    if len(found["rank"]) > MOST_ARRIVALS or int(found["meeting"].max(initial=-1)) >= MOST_MEETINGS:
        return f"its steps hold more collectives than the {MOST_MEETINGS:,} that are replayed together"
    groups = {row["lane"]: row["group_name"] for row in store.select(_GROUPS)}
    return meetings_of(ranks, found, store.arrays(_STRETCHES, {}), groups)


def meetings_of(ranks: Columns, found: Columns, stretches: Columns, groups: Mapping[int, str | None]) -> Meetings:
    """The meetings of ``ranks``, from the columns of the queries above; ``groups`` has the name of each lane."""
    known = np.isin(stretches["rank"], ranks["rank"])
    stretches = {name: values[known] for name, values in stretches.items()}
    begins = np.searchsorted(found["meeting"], np.arange(int(found["meeting"].max()) + 1))
    work = {cause: stretches[f"{cause}_ns"] for cause in CAUSES}
    return Meetings(
        ranks=ranks["rank"],
        steps=int(ranks["steps"][0]),
        stretches=Stretches(stretches["rank"], stretches["step"], _places(found, stretches), work),
        arrivals=_arrivals(found, ranks, stretches),
        wire=np.minimum.reduceat(found["dur"], begins),
        group=[groups[lane] for lane in found["lane"][begins].tolist()],
        begin=ranks["ts"] + ranks["offset_ns"],
        floor_ns=((ranks["end"] - ranks["ts"]) // ranks["steps"] * ranks["host_share"]).astype(np.int64),
    )


def _why_not(store: TraceStore, ranks: Columns) -> str | None:
    if len(ranks["rank"]) < 2:
        return "no collective of several ranks shows on their devices"
    if ranks["steps"].min() != ranks["steps"].max():
        return "the ranks were not recorded over the same number of steps"
    if ranks["steps"].min() < 2:
        return "one step does not show how ranks meet step after step"
    unsteady = store.select("SELECT unsteady FROM gain_limits WHERE unsteady IS NOT NULL ORDER BY rank LIMIT 1")
    return str(unsteady[0]["unsteady"]) if unsteady else None


def _arrivals(found: Columns, ranks: Columns, stretches: Columns) -> Arrivals:
    """The rows of ``found``, and behind them the ends of the windows of ``ranks``."""
    count, last = len(found["rank"]), int(found["meeting"].max()) + 1
    rank = np.concatenate([found["rank"], ranks["rank"]])
    meeting = np.concatenate([found["meeting"], np.full(len(ranks["rank"]), last)])
    time = np.concatenate([found["ts"], ranks["end"]])
    end = np.concatenate([found["end"], ranks["end"]])
    lane_of = np.concatenate([found["lane"], np.full(len(ranks["rank"]), NONE)])
    own, own_lag, since, until, before, before_lag, lane = (np.full(len(rank), NONE, dtype=np.int64) for _ in range(7))
    before_lag[:] = 0
    for number, who in enumerate(ranks["rank"].tolist()):
        mine = np.flatnonzero(rank == who)
        low, high = np.searchsorted(stretches["rank"], [who, who + 1])
        cuts = np.append(stretches["ts"][low:high], stretches["end"][high - 1])
        holds = _holds(cuts, stretches["held_until"][low:high], mine[mine < count], end)
        cut = np.searchsorted(cuts, time[mine], side="right") - 1
        hold = np.searchsorted(holds.begin, cut, side="right") - 1
        inside = (hold >= 0) & (cut < np.append(holds.end, 0)[hold])
        cut = np.where(inside, np.append(holds.begin, 0)[hold], cut)
        hold = np.where(inside, hold - 1, hold)
        cause = np.where(hold >= 0, np.append(holds.arrival, NONE)[hold], NONE)
        # What ends only after this began is no reason for it to begin.
        cause = np.where((cause != NONE) & (meeting[cause] < meeting[mine]), cause, NONE)
        own[mine] = cause
        own_lag[mine] = cuts[cut] + np.where(cause == NONE, int(ranks["offset_ns"][number]), -end[cause])
        since[mine] = low + np.where(cause == NONE, 0, np.append(holds.end, 0)[hold])
        until[mine] = low + cut
        before[mine], before_lag[mine] = _followed(time, end, meeting, mine, count)
        lane[mine] = _before_in_lane(time, end, meeting, lane_of, mine)
    return Arrivals(rank, meeting, own, own_lag, since, until, before, before_lag, lane)


def _places(found: Columns, stretches: Columns) -> Int64s:
    """How many collectives of its step each rank has come to when a stretch ends."""
    times = np.unique(found["ts"])
    stretch_at, found_at = np.searchsorted(times, stretches["ts"]), np.searchsorted(times, found["ts"])
    begins_with_one = times[np.minimum(stretch_at, len(times) - 1)] == stretches["ts"]
    places_of_found = found["rank"] * len(times) + found_at
    at_collective = begins_with_one & np.isin(stretches["rank"] * len(times) + stretch_at, places_of_found)
    so_far = np.cumsum(at_collective)
    begins = np.append(True, (np.diff(stretches["rank"]) != 0) | (np.diff(stretches["step"]) != 0))
    before: Int64s = (so_far - at_collective)[begins]
    places: Int64s = so_far - before[np.cumsum(begins) - 1]
    return places


@dataclass(frozen=True)
class _Holds:
    """Where a rank is held up: from cut ``begin`` to cut ``end`` (counted within the rank), by ``arrival``."""

    begin: Int64s
    end: Int64s
    arrival: Int64s


def _holds(cuts: Int64s, held_until: Int64s, arrivals: Int64s, end: Int64s) -> _Holds:
    """Those by collectives that are among ``arrivals``; ``held_until`` is the end of one for each stretch, or NEVER."""
    begins = held_until != NEVER
    begins[1:] &= held_until[1:] != held_until[:-1]
    begin = np.flatnonzero(begins)
    ends = np.flatnonzero((held_until != NEVER) & (np.append(held_until[1:], NEVER) != held_until)) + 1
    by_end = arrivals[np.argsort(end[arrivals], kind="stable")]
    at = np.searchsorted(end[by_end], held_until[begin])
    arrival = by_end[np.minimum(at, len(by_end) - 1)]
    known = end[arrival] == held_until[begin]
    return _Holds(begin[known], ends[known], arrival[known])


def _followed(time: Int64s, end: Int64s, meeting: Int64s, mine: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """For each arrival of a rank the collective that ended just before it, and how long before."""
    collectives = mine[mine < count]
    by_end = collectives[np.argsort(end[collectives], kind="stable")]
    at = np.searchsorted(end[by_end], time[mine], side="right") - 1
    cause = by_end[np.maximum(at, 0)]
    gap = time[mine] - end[cause]
    good = (at >= 0) & (gap <= ACROSS_NS) & (meeting[cause] < meeting[mine]) & (mine < count)
    return np.where(good, cause, NONE), np.where(good, gap, 0)


def _before_in_lane(time: Int64s, end: Int64s, meeting: Int64s, lane: Int64s, mine: Int64s) -> Int64s:
    """For each arrival of a rank the one before it in its group, unless they overlap."""
    order = mine[np.lexsort((time[mine], lane[mine]))]
    earlier, later = order[:-1], order[1:]
    good = (lane[earlier] == lane[later]) & (end[earlier] <= time[later]) & (meeting[earlier] < meeting[later])
    found = np.full(len(time), NONE, dtype=np.int64)
    found[later[good & (lane[later] != NONE)]] = earlier[good & (lane[later] != NONE)]
    return found[mine]
