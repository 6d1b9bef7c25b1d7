"""When ranks meet: each arrives at a collective after its own work, and all leave it once the last has come.

Of each rank this knows what lies between its collectives, not each unit of work: as many numbers for a rank of a
thousand as for one of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from perftool.replay.recording import NONE, Int64s

# Before everything: nothing has to wait for it.
NEVER = -(1 << 60)
CAUSES = ("compute", "copy", "dataloader", "compile", "host")
# Work of the host for which the device stands idle.
HOST_CAUSES = ("dataloader", "compile", "host")


@dataclass(frozen=True)
class Stretches:
    """What ranks do, in order of rank and time: ``work`` has the ns of each of CAUSES in each stretch.

    ``step`` is NONE between steps, and ``place`` how many collectives of the step the rank has come to before. What is
    done in stretches from a to b of a rank is what lies between the cuts a and b: cut n is where stretch n begins.
    """

    rank: Int64s
    step: Int64s
    place: Int64s
    work: Mapping[str, Int64s]

    def excess(self, cause: str) -> Int64s:
        """How much longer each takes for ``cause`` than the median rank between the same collectives, at least 0 ns."""
        work = self.work[cause]
        ranks, rank = np.unique(self.rank, return_inverse=True)
        _, step = np.unique(self.step, return_inverse=True)
        place = step * (int(self.place.max(initial=0)) + 1) + self.place
        keys, rows = np.unique(place * len(ranks) + rank, return_inverse=True)
        own = np.bincount(rows, work, len(keys))
        _, begins, places, count = np.unique(
            keys // len(ranks), return_index=True, return_inverse=True, return_counts=True
        )
        usual = own[np.lexsort((own, places))][begins + (count - 1) // 2][places]
        over = np.maximum(0, own - usual) / np.maximum(1, own)
        excess: Int64s = (work * over[rows]).round().astype(np.int64)
        return excess

    def of(self, change: Less) -> Iterator[slice]:
        """Each step of the rank that ``change`` is about, or the one that it names."""
        first, last = np.searchsorted(self.rank, [change.rank, change.rank + 1]).tolist()
        steps = self.step[first:last]
        cuts = [first, *(first + 1 + np.flatnonzero(np.diff(steps))).tolist(), last]
        for begin, end in pairwise(cuts):
            if begin < end and change.step in (None, int(self.step[begin])):
                yield slice(begin, end)


@dataclass(frozen=True)
class Arrivals:
    """Ranks that come to collectives, in the order of these; ``meeting`` counts them from 0.

    Rank ``rank`` arrives ``own_lag`` ns after it left arrival ``own`` (after the time 0 of all clocks, where that is
    NONE), the work between the cuts ``since`` and ``until`` lying in between. ``before`` and ``before_lag`` are the
    same for a collective that it follows on the device (NONE for none), and ``lane`` the one before it in its group.
    """

    rank: Int64s
    meeting: Int64s
    own: Int64s
    own_lag: Int64s
    since: Int64s
    until: Int64s
    before: Int64s
    before_lag: Int64s
    lane: Int64s


@dataclass(frozen=True)
class Meetings:
    """A few steps of all ranks. Meeting n lasts ``wire[n]`` ns once all have come; ``group`` names its process group.

    The last of ``arrivals``, one for each of ``ranks``, are where the window of the rank ends; ``begin`` is where it
    begins, on the clock of all. ``floor_ns`` is what the host of each rank needs for a step.
    """

    ranks: Int64s
    steps: int
    stretches: Stretches
    arrivals: Arrivals
    wire: Int64s
    group: Sequence[str | None]
    begin: Int64s
    floor_ns: Int64s

    @cached_property
    def unchanged_ns(self) -> int:
        """What a step takes as it is."""
        return self._step_ns(())[0]

    def predict(self, changes: Sequence[Less]) -> int:
        """What a step takes with ``changes``, in ns: no less than any host needs."""
        replayed, floor = self._step_ns(changes)
        # A host that needs as long as the steps took is no reason for them to take longer.
        return max(replayed, min(floor, self.unchanged_ns))

    def _step_ns(self, changes: Sequence[Less]) -> tuple[int, int]:
        """The mean step of the ranks, and the most that a host needs for one."""
        so_far, floors = self._saved(changes)
        ends = self._ends(so_far, self._wires(changes))
        ours = ends[len(ends) - len(self.ranks) :] - self.begin
        return int(ours.mean()) // self.steps, int(floors.max(initial=0))

    def _saved(self, changes: Sequence[Less]) -> tuple[Int64s, Int64s]:
        """What is saved until each cut, and what hosts need for a step then."""
        saved = np.zeros(len(self.stretches.rank), dtype=np.int64)
        floors = self.floor_ns.astype(np.float64)
        for cause in sorted({change.cause for change in changes} & set(CAUSES)):
            less = self._less(cause, [change for change in changes if change.cause == cause])
            saved += less
            if cause in HOST_CAUSES:
                at = np.searchsorted(self.ranks, self.stretches.rank)
                floors -= np.bincount(at, less, len(self.ranks)) / self.steps
        return np.concatenate([[0], np.cumsum(saved)]).astype(np.int64), floors.astype(np.int64)

    def _less(self, cause: str, changes: Sequence[Less]) -> Int64s:
        """What each stretch is shorter by: first what it has in excess of the median rank."""
        own = self.stretches
        work, excess = own.work[cause], own.excess(cause)
        less = np.zeros(len(work), dtype=np.int64)
        for change in changes:
            for at in own.of(change):
                wanted, over, whole = (1 - change.factor) * work[at].sum(), excess[at].sum(), work[at].sum()
                first = excess[at] * min(1.0, wanted / max(1, over))
                rest = (work[at] - excess[at]) * (max(0.0, wanted - over) / max(1, whole - over))
                less[at] = np.maximum(less[at], np.floor(first + rest))
        return less

    def _wires(self, changes: Sequence[Less]) -> Int64s:
        factor = np.ones(len(self.wire))
        for change in changes:
            if change.cause == "link":
                mine = np.unique(self.arrivals.meeting[self.arrivals.rank == change.rank])
                chosen = [n for n in mine.tolist() if n < len(self.wire) and self.group[n] == change.group]
                factor[chosen] = np.minimum(factor[chosen], change.factor)
        wires: Int64s = (self.wire * factor).round().astype(np.int64)
        return wires

    def _ends(self, so_far: Int64s, wire: Int64s) -> Int64s:
        """When each arrival leaves its meeting."""
        come = self.arrivals
        lag = come.own_lag - (so_far[come.until] - so_far[come.since])
        ends = np.zeros(len(lag) + 1, dtype=np.int64)
        # The last place stands for nothing: time 0, or what never holds anything up.
        own, before, lane = (np.where(n == NONE, len(lag), n) for n in (come.own, come.before, come.lane))
        before_lag = np.where(come.before == NONE, NEVER, come.before_lag)
        lane_lag = np.where(come.lane == NONE, NEVER, 0)
        bounds = np.searchsorted(come.meeting, np.arange(len(wire) + 1))
        for number, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            at = slice(first, last)
            arrive = np.maximum(ends[own[at]] + lag[at], ends[before[at]] + before_lag[at])
            ends[at] = np.maximum(arrive, ends[lane[at]] + lane_lag[at]).max() + wire[number]
        rest = slice(int(bounds[-1]), len(lag))
        ends[rest] = np.maximum(ends[own[rest]] + lag[rest], ends[before[rest]] + before_lag[rest])
        return ends[:-1]


@dataclass(frozen=True)
class Less:
    """Rank ``rank`` spends ``factor`` of the time for ``cause``, in ``step`` or (None) in all of them.

    It spends less where it spends more than the median rank between the same collectives.

    For the cause ``link`` it is the collectives of the process group ``group``, in which the rank takes part, that are
    so much quicker once all have come.
    """

    rank: int
    cause: str
    factor: float
    step: int | None = None
    group: str | None = None
