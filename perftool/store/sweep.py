"""Unions and sweeps of intervals in arrays: what macros of the tables do, for the one table that is too large for them.

Intervals are half open, [ts, end), in ns. Equally long arrays of 64-bit integers name their rank and class.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Intervals = tuple[Int64s, Int64s, Int64s, Int64s]

_LARGEST = 2**62


def unite(rank: Int64s, kind: Int64s, ts: Int64s, end: Int64s) -> Intervals:
    """Overlapping and touching intervals of a rank and class become one; sorted by rank, class and time.

    Takes and returns (rank, class, ts, end). Those of no length are left out.
    """
    lasting = end > ts
    rank, kind, ts, end = rank[lasting], kind[lasting], ts[lasting], end[lasting]
    order = np.lexsort((ts, kind, rank))
    rank, kind, ts, end = rank[order], kind[order], ts[order], end[order]
    group = np.zeros(len(ts), dtype=np.int64)
    group[1:] = np.cumsum((rank[1:] != rank[:-1]) | (kind[1:] != kind[:-1]))
    reach = _running_maximum(group, end)
    # An island starts where nothing before it in its group reaches, and ends where the next one finds the reach.
    first = np.ones(len(ts), dtype=bool)
    first[1:] = (group[1:] != group[:-1]) | (ts[1:] > reach[:-1])
    last = np.ones(len(ts), dtype=bool)
    last[:-1] = first[1:]
    return rank[first], kind[first], ts[first], reach[last]


def sweep(rank: Int64s, bits: Int64s, ts: Int64s, end: Int64s) -> Intervals:
    """Cut time wherever an interval of the rank starts or ends; returns (rank, ts, end, mask), in order.

    ``mask`` has the bits of the intervals that are active; 0 for one that only marks its ends. Those with the same bit
    must not overlap.
    """
    ranks = np.concatenate((rank, rank))
    times = np.concatenate((ts, end))
    order = np.lexsort((times, ranks))
    ranks, times = ranks[order], times[order]
    # The intervals of a rank that start also end, so that every rank begins with no bit.
    masks = np.cumsum(np.concatenate((bits, -bits))[order])
    begin = np.flatnonzero((ranks[1:] == ranks[:-1]) & (times[1:] > times[:-1]))
    return ranks[begin], times[begin], times[begin + 1], masks[begin]


def _running_maximum(group: Int64s, values: Int64s) -> Int64s:
    """The largest of ``values`` so far in each group; groups are numbered from 0 in order."""
    if not len(values):
        return values
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span * (int(group[-1]) + 1) < _LARGEST:
        # Each group in a range of its own, above those before it.
        base = group * span - low
        reach: Int64s = np.maximum.accumulate(values + base) - base
        return reach
    parts = np.split(values, np.flatnonzero(np.diff(group)) + 1)
    return np.concatenate([np.maximum.accumulate(part) for part in parts])
