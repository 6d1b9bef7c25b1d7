"""Unions and sweeps of intervals in arrays, like the SQL macros, for a table that is too large for SQL.

Intervals are half open, [ts, end), in ns. Their ranks, classes and times are arrays of 64-bit integers of equal length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Intervals = tuple[Int64s, Int64s, Int64s, Int64s]

_LARGEST = 2**62
_NONE = np.zeros(0, dtype=np.int64)


def unite(rank: Int64s, kind: Int64s, ts: Int64s, end: Int64s) -> Intervals:
    """Merge overlapping or touching intervals of the same rank and class, and drop empty intervals.

    Return (rank, class, ts, end), sorted by rank, class and time.
    """
    nonempty = end > ts
    rank, kind, ts, end = rank[nonempty], kind[nonempty], ts[nonempty], end[nonempty]
    order = np.lexsort((ts, kind, rank))
    rank, kind, ts, end = rank[order], kind[order], ts[order], end[order]
    group = np.zeros(len(ts), dtype=np.int64)
    group[1:] = np.cumsum((rank[1:] != rank[:-1]) | (kind[1:] != kind[:-1]))
    reach = _running_maximum(group, end)
    # A merged interval starts where no earlier interval of its group reaches. It ends at the largest end before the
    # next one starts.
    first = np.ones(len(ts), dtype=bool)
    first[1:] = (group[1:] != group[:-1]) | (ts[1:] > reach[:-1])
    last = np.ones(len(ts), dtype=bool)
    last[:-1] = first[1:]
    return rank[first], kind[first], ts[first], reach[last]


def sweep(rank: Int64s, bits: Int64s, ts: Int64s, end: Int64s) -> Intervals:
    """Divide each rank's time wherever one of its intervals starts or ends; return (rank, ts, end, mask), in order.

    ``mask`` is the sum of ``bits`` over the active intervals; an interval whose ``bits`` is 0 only marks its start and
    end. Intervals with the same bit must not overlap.
    """
    ranks = np.concatenate((rank, rank))
    times = np.concatenate((ts, end))
    order = np.lexsort((times, ranks))
    ranks, times = ranks[order], times[order]
    # Every interval ends, so each rank begins with an empty mask.
    masks = np.cumsum(np.concatenate((bits, -bits))[order])
    begin = np.flatnonzero((ranks[1:] == ranks[:-1]) & (times[1:] > times[:-1]))
    return ranks[begin], times[begin], times[begin + 1], masks[begin]


class Sweep:
    """Sweeps intervals period by period, with the same result as sweeping them all at once.

    ``marks`` are (rank, ts, end) of intervals that only mark their starts and ends. With several periods, each rank
    needs a mark over its whole extent.
    """

    def __init__(self, marks: tuple[Int64s, Int64s, Int64s]) -> None:
        self._marks = marks
        self._held: Intervals = (_NONE, _NONE, _NONE, _NONE)

    def add(
        self, rank: Int64s, kind: Int64s, ts: Int64s, end: Int64s, begin: int | None = None, until: int | None = None
    ) -> Intervals:
        """Sweep the period from ``begin``, where the previous period ended, to ``until``.

        The arrays must contain all intervals that reach into the period. Stretches that last until the end of the
        period may continue, so the next call returns them. ``begin`` of the first period and ``until`` of the last are
        None.
        """
        rank, kind, ts, end = unite(rank, kind, *_clipped(ts, end, begin, until))
        mark_rank, mark_ts, mark_end = self._marks
        mark_ts, mark_end = _clipped(mark_ts, mark_end, begin, until)
        bits = np.concatenate((np.left_shift(np.int64(1), kind), np.zeros(len(mark_rank), dtype=np.int64)))
        rank, ts, end = (np.concatenate(pair) for pair in ((rank, mark_rank), (ts, mark_ts), (end, mark_end)))
        return self._without_cut(sweep(rank, bits, ts, end), begin, until)

    def _without_cut(self, swept: Intervals, begin: int | None, until: int | None) -> Intervals:
        """Join ``swept`` with the stretches held back by the previous call, and hold back the stretches that may
        continue in the next period."""
        rank, ts, end, mask = swept
        held_rank, held_ts, held_end, held_mask = self._held
        first = np.searchsorted(rank, held_rank)
        goes_on = np.isin(held_rank, rank) & ~np.isin(held_rank, self._marked(begin))
        here = first[goes_on]
        goes_on[goes_on] = (ts[here] == held_end[goes_on]) & (mask[here] == held_mask[goes_on])
        ts[first[goes_on]] = held_ts[goes_on]
        rank, ts, end, mask = (
            np.concatenate((kept[~goes_on], new)) for kept, new in zip(self._held, (rank, ts, end, mask), strict=True)
        )
        continuing = end == until if until is not None else np.zeros(len(end), dtype=bool)
        self._held = rank[continuing], ts[continuing], end[continuing], mask[continuing]
        return rank[~continuing], ts[~continuing], end[~continuing], mask[~continuing]

    def _marked(self, moment: int | None) -> Int64s:
        """Return the ranks with a mark that starts or ends at ``moment``."""
        rank, ts, end = self._marks
        return rank[(ts == moment) | (end == moment)] if moment is not None else _NONE


def _clipped(ts: Int64s, end: Int64s, begin: int | None, until: int | None) -> tuple[Int64s, Int64s]:
    """Clip intervals to the period from ``begin`` to ``until``. Intervals outside the period become empty."""
    if begin is not None:
        ts, end = np.maximum(ts, begin), np.maximum(end, begin)
    if until is not None:
        ts, end = np.minimum(ts, until), np.minimum(end, until)
    return ts, end


def _running_maximum(group: Int64s, values: Int64s) -> Int64s:
    """Return the running maximum of ``values`` within each group; groups are contiguous and numbered from 0."""
    if not len(values):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span * (int(group[-1]) + 1) < _LARGEST:
        # Shift each group's values above those of earlier groups.
        base = group * span - low
        reach: Int64s = np.maximum.accumulate(values + base) - base
        return reach
    parts = np.split(values, np.flatnonzero(np.diff(group)) + 1)
    return np.concatenate([np.maximum.accumulate(part) for part in parts])
