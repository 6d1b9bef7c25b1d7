"""Determines when ranks arrive at collectives, and how much they work in between."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perftool.replay.limits import ACROSS_NS, ROUNDED_NS
from perftool.replay.ranks.meetings import CAUSES, NEVER, Arrivals
from perftool.replay.ranks.peers import ArrivalFacts, peers_of, usual_of
from perftool.replay.recording import NONE, Int64s

Columns = Mapping[str, Any]


def arrivals_of(
    found: Columns, ranks: Columns, steps: Int64s, stretches: Columns, stages: Mapping[int, Sequence[int]],
    single: Container[int] = (),
) -> tuple[Arrivals, dict[int, int]]:  # fmt: skip
    """Return the arrivals in ``found`` followed by the window ends of ``ranks``, and the role of each rank.

    ``single`` contains the ranks that are the only recorded rank of their stage.
    """
    facts = _calls_of(found, ranks, steps)
    each = _Collectives(facts)
    for at, rank in enumerate(ranks["rank"].tolist()):
        low, high = np.searchsorted(stretches["rank"], [rank, rank + 1])
        parts = {name: values[low:high] for name, values in stretches.items()}
        each.add(rank, int(ranks["ts"][at]), int(ranks["offset_ns"][at]), parts)
    kind = np.concatenate([found["kind"], np.full(len(ranks["rank"]), int(found["kind"].max()) + 1)])
    peers, roles = peers_of(facts, kind, each.orders, stages, single)
    # Window ends are not compared, because no recorded rank waits after the last collective.
    usual = usual_of(facts, each.work, peers, roles, each.orders)
    compared = {
        name: (values, usual.excess(each.cause_sums[name], each.cause_begins[name], facts.rank))
        for name, values in each.causes.items()
    }
    made = Arrivals(
        facts.rank, facts.step, facts.meeting, each.ready, each.own, each.own_lag, each.before, each.before_lag,
        each.lane, each.work, usual.excess(each.sums, each.start_sums, facts.rank), np.concatenate(each.orders),
        each.left, compared,
    )  # fmt: skip
    return made, roles


def _calls_of(found: Columns, ranks: Columns, steps: Int64s) -> ArrivalFacts:
    last, number = int(found["meeting"].max()) + 1, len(ranks["rank"])
    none = np.full(number, NONE)
    return ArrivalFacts(
        count=len(found["rank"]),
        rank=np.concatenate([found["rank"], ranks["rank"]]),
        step=np.concatenate([found["step"], np.full(number, steps[-1])]),
        meeting=np.concatenate([found["meeting"], np.full(number, last)]),
        begin=np.concatenate([found["ts"], ranks["end"]]),
        ready=np.concatenate([found["ready"], ranks["end"]]),
        known=np.concatenate([found["known"], np.ones(number, dtype=np.int64)]),
        end=np.concatenate([found["end"], ranks["end"]]),
        lane=np.concatenate([found["lane"], none]),
        track=np.concatenate([found["track"], none]),
    )


class _Collectives:
    """The columns of Arrivals, filled rank by rank. ``sums`` and ``cause_sums`` are the work before each arrival."""

    def __init__(self, facts: ArrivalFacts) -> None:
        size = len(facts.rank)
        self.facts = facts
        self.own, self.own_lag, self.before, self.lane = (np.full(size, NONE, dtype=np.int64) for _ in range(4))
        self.before_lag, self.ready = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self.work, self.left, self.sums = np.zeros(size), np.zeros(size), np.zeros(size)
        self.causes = {cause: np.zeros(size) for cause in CAUSES}
        self.cause_sums = {cause: np.zeros(size) for cause in CAUSES}
        self.cause_begins: dict[str, dict[int, float]] = {cause: {} for cause in CAUSES}
        self.start_sums: dict[int, float] = {}
        self.orders: list[Int64s] = []

    def add(self, rank: int, begin: int, offset: int, parts: Columns) -> None:
        """Add ``rank``, whose window begins at ``begin`` and whose stretches are ``parts``."""
        facts = self.facts
        mine = np.flatnonzero(facts.rank == rank)
        self.before[mine], self.before_lag[mine], ready = _followed(facts, mine)
        self.ready[mine] = ready + offset
        self.lane[mine] = _before_in_lane(facts, mine)
        cuts = np.append(parts["ts"], parts["end"][-1])
        holds = _holds(cuts, parts["held_until"], mine[mine < facts.count], facts.end)
        done = _Done(cuts, holds)
        moments, start_sums = done.until(ready), done.until(np.array([begin]))
        hold = np.searchsorted(cuts[holds.end], ready + ROUNDED_NS, side="right") - 1
        cause = np.where(hold >= 0, np.append(holds.arrival, NONE)[hold], NONE)
        release = np.append(cuts[holds.end], begin)[hold]
        # A collective that comes later, or that ended before the window, did not delay this arrival.
        held = (cause != NONE) & (facts.meeting[cause] < facts.meeting[mine]) & (release > begin)
        self.own[mine] = np.where(held, cause, NONE)
        free = np.where(hold < 0, begin + offset + moments - start_sums[0], ready + offset)
        self.own_lag[mine] = np.where(held, release - facts.end[cause] + moments - done.until(release), free)
        # The work between consecutive arrivals, in the order in which they are ready.
        order = np.lexsort((facts.begin[mine], ready))
        self.work[mine[order]] = np.diff(moments[order], prepend=start_sums)
        self.sums[mine], self.start_sums[rank] = moments, float(start_sums[0])
        places = np.arange(len(order) + 1) + sum(map(len, self.orders))
        since = np.where(held, done.until(release), start_sums[0])
        self.left[mine] = np.interp(since, np.append(start_sums, moments[order]), places)
        self.orders.append(mine[order])
        for name in CAUSES:
            totals = np.append(0, np.cumsum(parts[f"{name}_ns"]))
            sums, first = np.interp(ready, cuts, totals), float(np.interp(begin, cuts, totals))
            self.cause_sums[name][mine], self.cause_begins[name][rank] = sums, first
            self.causes[name][mine[order]] = np.diff(sums[order], prepend=first)


@dataclass(frozen=True)
class _Holds:
    """The waits of a rank. Each lasts from cut ``begin`` to cut ``end`` (indices into the rank's cuts) and is caused by
    the collective of ``arrival``."""

    begin: Int64s
    end: Int64s
    arrival: Int64s


class _Done:
    """Sums the work of a rank up to any time. Time counts as work while no known collective blocks the rank."""

    def __init__(self, cuts: Int64s, holds: _Holds) -> None:
        free = np.ones(len(cuts) - 1)
        for begin, end in zip(holds.begin.tolist(), holds.end.tolist(), strict=True):
            free[begin:end] = 0.0
        self._cuts, self._sums = cuts, np.append(0.0, np.cumsum(np.diff(cuts) * free))

    def until(self, moments: Int64s) -> Int64s:
        """Return the work before each of ``moments``, in ns."""
        found: Int64s = np.interp(moments, self._cuts, self._sums).round().astype(np.int64)
        return found


def _holds(cuts: Int64s, held_until: Int64s, arrivals: Int64s, end: Int64s) -> _Holds:
    """Find the waits for the collectives of ``arrivals``. ``held_until`` is, for each stretch, the time at which a
    collective releases the rank, or NEVER."""
    begins = held_until != NEVER
    begins[1:] &= held_until[1:] != held_until[:-1]
    begin = np.flatnonzero(begins)
    ends = np.flatnonzero((held_until != NEVER) & (np.append(held_until[1:], NEVER) != held_until)) + 1
    by_end = arrivals[np.argsort(end[arrivals], kind="stable")]
    at = np.searchsorted(end[by_end], held_until[begin])
    arrival = by_end[np.minimum(at, len(by_end) - 1)]
    known = end[arrival] == held_until[begin]
    return _Holds(begin[known], ends[known], arrival[known])


def _followed(facts: ArrivalFacts, mine: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return, for each arrival of a rank, the collective that ended just before, how long before (ns), and when the
    rank was ready.

    A collective counts as queued behind another if it started right after the other ended on the same stream. If the
    other ran on another stream, the work before its own launch must also have ended earlier. A queued collective was
    ready when the work before its launch was done. All other collectives started as soon as they were ready.
    """
    begin, end, meeting = facts.begin, facts.end, facts.meeting
    collectives = mine[mine < facts.count]
    cause, good = np.full(len(mine), NONE), np.zeros(len(mine), dtype=bool)
    for same in (False, True):
        for track in np.unique(facts.track[collectives]).tolist():
            chosen = (facts.track[mine] == track) & (mine < facts.count)
            candidates = collectives[(facts.track[collectives] == track) == same]
            if not len(candidates) or not chosen.any():
                continue
            by_end = candidates[np.argsort(end[candidates], kind="stable")]
            at = np.searchsorted(end[by_end], begin[mine[chosen]] + ROUNDED_NS, side="right") - 1
            found = by_end[np.maximum(at, 0)]
            just = (
                (at >= 0) & (begin[mine[chosen]] - end[found] <= ACROSS_NS) & (meeting[found] < meeting[mine[chosen]])
            )
            if not same:
                # Otherwise, the collective may have waited for the compute launched before it.
                late = begin[mine[chosen]] - facts.ready[mine[chosen]] > ACROSS_NS
                just &= late | (facts.known[mine[chosen]] == 0)
            rows = np.flatnonzero(chosen)[just]
            cause[rows], good[rows] = found[just], True
    ready = np.where(good, facts.ready[mine], begin[mine])
    return np.where(good, cause, NONE), np.where(good, begin[mine] - end[cause], 0), ready


def _before_in_lane(facts: ArrivalFacts, mine: Int64s) -> Int64s:
    """Return, for each arrival of a rank, its previous arrival in the same process group, unless the two overlap."""
    order = mine[np.lexsort((facts.begin[mine], facts.lane[mine]))]
    earlier, later = order[:-1], order[1:]
    lane = facts.lane
    good = (lane[earlier] == lane[later]) & (facts.end[earlier] <= facts.begin[later] + ROUNDED_NS)
    good &= (facts.meeting[earlier] < facts.meeting[later]) & (lane[later] != NONE)
    found = np.full(len(facts.rank), NONE, dtype=np.int64)
    found[later[good]] = earlier[good]
    return found[mine]
