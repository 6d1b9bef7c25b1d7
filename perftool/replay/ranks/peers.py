"""Compares each rank with the median rank that has the same role."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perftool.replay.ranks.meetings import Floats
from perftool.replay.recording import NONE, Int64s


@dataclass
class ArrivalFacts:
    """Recorded facts about each arrival at a collective. Entries after the first ``count`` are the ends of windows."""

    count: int
    rank: Int64s
    step: Int64s
    meeting: Int64s
    begin: Int64s
    ready: Int64s
    known: Int64s
    end: Int64s
    lane: Int64s
    track: Int64s


def peers_of(
    facts: ArrivalFacts, kind: Int64s, orders: Sequence[Int64s], stages: Mapping[int, Sequence[int]],
    single: Container[int],
) -> tuple[Int64s, dict[int, int]]:  # fmt: skip
    """Number the arrivals, so that ranks with the same role get the same number at the same collective; also return the
    roles.

    Ranks have the same role if they are in the same pipeline stage and make the same number of calls of each kind.
    Ranks in ``single``, the only recorded ranks of their stage, get the role of a rank in another stage that makes at
    least the same calls.
    """
    stage_of = {rank: place for place, members in stages.items() for rank in members}
    calls = {int(facts.rank[order[0]]): np.bincount(kind[order], minlength=int(kind.max()) + 1) for order in orders}
    roles: dict[tuple[int | None, bytes], int] = {}
    role_of = {rank: roles.setdefault((stage_of.get(rank), calls[rank].tobytes()), len(roles)) for rank in calls}
    for rank in [one for one in role_of if one in single]:
        mine = calls[rank] > 0
        alike = [one for one in calls if one != rank and (calls[one][mine] == calls[rank][mine]).all()]
        role_of[rank] = role_of[min(alike, default=rank)]
    keys: dict[tuple[int, ...], int] = {}
    numbers = np.zeros(len(kind), dtype=np.int64)
    for order in orders:
        role = role_of[int(facts.rank[order[0]])]
        seen: dict[tuple[int, int], int] = {}
        for at, step, what in zip(order.tolist(), facts.step[order].tolist(), kind[order].tolist(), strict=True):
            nth = seen[step, what] = seen.get((step, what), 0) + 1
            numbers[at] = keys.setdefault((role, step, what, nth), len(keys))
    return numbers, role_of


@dataclass(frozen=True)
class Usual:
    """The arrivals that each arrival is compared with, as arrays of indices (or NONE) with one entry per arrival.

    ``there``: the counterpart on the median rank with the same role; NONE if there is nothing to compare.
    ``since``: the last arrival of the same rank in the previous step; NONE stands for the start of the window.
    ``since_there``: the counterpart of ``since`` on the median rank; NONE stands for the start of the window.
    ``before``: the previous arrival of the same rank in the same step, in the order in which they are ready; NONE for
    the first.
    """

    there: Int64s
    since: Int64s
    since_there: Int64s
    before: Int64s

    def excess(self, sums: Floats, begins: Mapping[int, float], rank: Int64s) -> Floats:
        """Return how much more each rank works between the previous arrival and this one than the median rank, in ns.
        ``sums`` is the work before each arrival, ``begins`` the work before each rank's window. This compares sums
        since the previous step, because ranks reach concurrent collectives in any order.
        """
        start_sums = np.array([begins[one] for one in rank.tolist()])
        start_there = np.where(self.there == NONE, 0.0, start_sums[self.there])
        own = sums - np.where(self.since == NONE, start_sums, sums[self.since])
        usual = sums[self.there] - np.where(self.since_there == NONE, start_there, sums[self.since_there])
        more = np.where(self.there == NONE, 0.0, own - usual)
        excess: Floats = np.where(self.there == NONE, 0.0, more - np.where(self.before == NONE, 0.0, more[self.before]))
        return excess


def usual_of(
    facts: ArrivalFacts, work: Floats, peers: Int64s, roles: Mapping[int, int], orders: Sequence[Int64s]
) -> Usual:
    """Find the counterparts on the median rank: the rank with the median work in a step among ranks with the same
    role."""
    totals: dict[tuple[int, int], dict[int, float]] = {}
    step, rank, keys = facts.step.tolist(), facts.rank.tolist(), peers.tolist()
    at = {(keys[n], rank[n]): n for n in range(facts.count)}
    for n in range(facts.count):
        ranks = totals.setdefault((roles[rank[n]], step[n]), {})
        ranks[rank[n]] = ranks.get(rank[n], 0.0) + float(work[n])
    median = {
        key: sorted(ranks, key=lambda one: (ranks[one], one))[(len(ranks) - 1) // 2] for key, ranks in totals.items()
    }
    there, since, since_there, before = (np.full(len(rank), NONE, dtype=np.int64) for _ in range(4))
    for order in orders:
        base = previous = NONE
        for n in order.tolist():
            if n >= facts.count:
                continue
            if previous != NONE and step[previous] != step[n]:
                base, previous = previous, NONE
            usual = median[roles[rank[n]], step[n]]
            since_usual = NONE if base == NONE else at.get((keys[base], usual), NONE)
            if base == NONE or since_usual != NONE:
                there[n], since[n], since_there[n] = at.get((keys[n], usual), NONE), base, since_usual
            before[n] = previous
            previous = n
    return Usual(there, since, since_there, before)
