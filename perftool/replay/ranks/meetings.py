"""A model of ranks that meet at collectives: each arrives after its own work, and all leave once the last has arrived.
The model contains sums of work between collectives rather than individual units of work, which bounds its size per
rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from perftool.replay.recording import NONE, Int64s

Floats = npt.NDArray[np.float64]
# A time so early that nothing waits for it.
NEVER = -(1 << 60)
CAUSES = ("compute", "copy", "dataloader", "compile", "host")


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of ranks at collectives, in the order of the collectives. ``meeting`` numbers the collectives from 0.

    Rank ``rank`` is ready at ``ready`` (ns on the common clock). ``own``, ``before`` and ``lane`` are indices of
    earlier arrivals of the same rank, or NONE.

    ``own``: the last arrival at a collective that blocked the rank. The rank is ready ``own_lag`` ns after that
    collective ends, or after time 0 if ``own`` is NONE. ``before``: the arrival at the collective that this arrival's
    collective was queued behind. That collective ended ``before_lag`` ns before this one started. ``lane``: the
    previous arrival in the same process group. ``work``: how long, in ns, the rank worked (was not blocked by a
    collective) since it was ready for its previous collective. ``excess``: how much longer that is than on the median
    rank with the same role. ``order``: the indices of all arrivals, rank by rank, in the order in which they are ready.
    ``left``: the place in the rank's work at which ``own`` ended, as a position in ``order``. The fraction is a share
    of the work before the next arrival. ``causes``: the work and the excess due to each of CAUSES.
    """

    rank: Int64s
    step: Int64s
    meeting: Int64s
    ready: Int64s
    own: Int64s
    own_lag: Int64s
    before: Int64s
    before_lag: Int64s
    lane: Int64s
    work: Floats
    excess: Floats
    order: Int64s
    left: Floats
    causes: Mapping[str, tuple[Floats, Floats]]


@dataclass(frozen=True)
class Less:
    """A change that multiplies the time that rank ``rank`` spends on ``cause`` by ``factor``, in ``step`` or, if that
    is None, in all steps.

    ``cause`` is one of CAUSES, or ``own`` for all work of the rank, or ``link`` for the transfers of its process group
    ``group``. If ``factor`` is None, the rank takes as long as the median rank with the same role.
    """

    rank: int
    cause: str
    factor: float | None
    step: int | None = None
    group: str | None = None


@dataclass(frozen=True)
class Meetings:
    """A few steps of all ranks. A meeting is one collective, or a send with its receive, matched across its ranks.

    Each meeting takes ``wire`` ns once all ranks have arrived. ``kind`` is a number for its operation, size and number
    of ranks. ``group`` is the name of its process group, and ``lane`` is the number of the group. ``passes``: whether
    it is a send with its receive.

    The last entries of ``arrivals``, one per rank, are the ends of the ranks' windows; ``begin`` contains the starts of
    the windows (ns on the common clock). For all other arrivals, ``spent`` is the time in ns that the rank spent in the
    meeting. Ranks with equal ``roles`` make the same calls. ``stages`` lists the ranks of each pipeline stage.
    ``floor_ns`` is the time that each rank's host needs for a step.
    """

    ranks: Int64s
    steps: Int64s
    arrivals: Arrivals
    wire: Int64s
    kind: Int64s
    lane: Int64s
    group: Sequence[str | None]
    passes: npt.NDArray[np.bool_]
    spent: Int64s
    roles: Mapping[int, int]
    stages: Mapping[int, Sequence[int]]
    begin: Int64s
    floor_ns: Int64s

    @cached_property
    def unchanged_ns(self) -> int:
        """The mean length of a step in the unchanged replay, in ns."""
        return int(self._took([()])[0])

    def predict(self, changes: Sequence[Less]) -> int:
        """Return the predicted length of a step with ``changes``, in ns."""
        return self.predict_each([changes])[0]

    def predict_each(self, many: Sequence[Sequence[Less]]) -> list[int]:
        """Return the predicted step time in ns for each set of changes. It is at least the host time of every unchanged
        rank."""
        found = []
        for changes, took in zip(many, self._took(many).tolist(), strict=True):
            changed = {change.rank for change in changes if change.cause != "link"}
            needs = zip(self.ranks.tolist(), self.floor_ns.tolist(), strict=True)
            floor = max((ns for rank, ns in needs if rank not in changed), default=0)
            # The host time must not make a prediction longer than the unchanged step.
            found.append(max(int(took), min(floor, self.unchanged_ns)))
        return found

    def _took(self, many: Sequence[Sequence[Less]]) -> Floats:
        less = np.stack([self._less(changes) for changes in many], axis=1)
        wire = np.stack([self._wires(changes) for changes in many], axis=1)
        ends = self._ends(less, wire)
        # Measure from the last start to the last end, because ranks that started earlier waited for a rank that was
        # late before the recording.
        took: Floats = (ends[len(ends) - len(self.ranks) :].max(axis=0) - self.begin.max()) / len(self.steps)
        return took

    @property
    def measured_ns(self) -> int:
        """The mean length of a step in the recording, in ns."""
        return int(self.arrivals.ready[len(self.arrivals.ready) - len(self.ranks) :].max() - self.begin.max()) // len(
            self.steps
        )

    def _less(self, changes: Sequence[Less]) -> Floats:
        """Return the time in ns that ``changes`` save in the work before each arrival. If several apply, the largest
        saving counts."""
        come = self.arrivals
        less = np.zeros(len(come.rank))
        for change in changes:
            if change.cause == "link":
                continue
            work, excess = (come.work, come.excess) if change.cause == "own" else come.causes[change.cause]
            mine = come.rank == change.rank
            if change.step is not None:
                mine &= come.step == change.step
            saved = excess if change.factor is None else (1 - change.factor) * work
            less = np.where(mine, np.where(np.abs(saved) > np.abs(less), saved, less), less)
        return less

    def _wires(self, changes: Sequence[Less]) -> Floats:
        factor = np.ones(len(self.wire))
        for change in changes:
            if change.cause == "link":
                chosen = self._meetings_of(change.rank, change.group)
                factor[chosen] = np.minimum(factor[chosen], 1.0 if change.factor is None else change.factor)
        wires: Floats = self.wire * factor
        return wires

    def _meetings_of(self, rank: int, group: str | None) -> Int64s:
        """Return the numbers of the meetings of ``group`` in which ``rank`` takes part."""
        numbers = self._of_group.get(group, np.zeros(0, dtype=np.int64))
        keys = self._key(numbers, np.int64(rank))
        at = np.minimum(np.searchsorted(self._members, keys), len(self._members) - 1)
        chosen: Int64s = numbers[self._members[at] == keys]
        return chosen

    @cached_property
    def _of_group(self) -> dict[str | None, Int64s]:
        """The numbers of the meetings of each group."""
        numbers = defaultdict(list)
        for number, group in enumerate(self.group):
            numbers[group].append(number)
        return {group: np.array(found, dtype=np.int64) for group, found in numbers.items()}

    @cached_property
    def _members(self) -> Int64s:
        """A number for each meeting and rank that takes part in it, in order."""
        members: Int64s = np.unique(self._key(self.arrivals.meeting, self.arrivals.rank))
        return members

    def _key(self, meeting: Int64s, rank: Int64s | np.int64) -> Int64s:
        keys: Int64s = meeting * (self.ranks.max() + 1) + rank
        return keys

    def _ends(self, less: Floats, wire: Floats) -> Floats:
        """Return the times at which ranks leave collectives, in ns: one row for each arrival, one column for each
        scenario.
        """
        come = self.arrivals
        count, columns = less.shape
        # Running totals of the savings, in ``order``. The saving between the end of ``own`` and an arrival is the
        # difference of two totals.
        saved = np.concatenate([np.zeros((1, columns)), np.cumsum(less[come.order], axis=0)])
        place = np.empty(count, dtype=np.int64)
        place[come.order] = np.arange(count)
        whole = come.left.astype(np.int64)
        part = (come.left - whole)[:, None]
        until_left = saved[whole] + part * (saved[np.minimum(whole + 1, count)] - saved[whole])
        lag = come.own_lag[:, None] - (saved[place + 1] - until_left)
        ends = np.zeros((count + 1, columns))
        # The last element stands for NONE: time 0, or a meeting that never blocks.
        own, before, lane = (np.where(n == NONE, count, n) for n in (come.own, come.before, come.lane))
        before_lag = np.where(come.before == NONE, NEVER, come.before_lag)[:, None]
        lane_lag = np.where(come.lane == NONE, NEVER, 0)[:, None]
        bounds = np.searchsorted(come.meeting, np.arange(len(wire) + 1)).tolist()
        for number, (first, last) in enumerate(pairwise(bounds)):
            at = slice(first, last)
            arrive = np.maximum(ends[own[at]] + lag[at], ends[before[at]] + before_lag[at])
            ends[at] = np.maximum(arrive, ends[lane[at]] + lane_lag[at]).max(axis=0) + wire[number]
        rest = slice(bounds[-1], count)
        ends[rest] = np.maximum(ends[own[rest]] + lag[rest], ends[before[rest]] + before_lag[rest])
        return ends[:-1]
