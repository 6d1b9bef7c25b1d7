"""Computes the depth and the parent of slices, for millions of slices at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
_NONE = np.zeros(0, dtype=np.int64)


class Slices(NamedTuple):
    """Slices as columns. ``kind`` is a number for the category; ``end`` must not be before ``start``."""

    id: Int64s
    track: Int64s
    start: Int64s
    end: Int64s
    kind: Int64s


class Nested(NamedTuple):
    """For each slice: the number of slices open at its start, the id of the innermost of these (-1 if there is none),
    and whether the slice is outermost. It is outermost if its parent has another kind or ends earlier."""

    depth: Int64s
    parent: Int64s
    outermost: npt.NDArray[np.bool_]


class Nesting:
    """Nests slices period by period, with the same result as nesting them all at once.

    Keeps the possible parents of later slices: those still open, and the last slice at each depth
    of a track.
    """

    def __init__(self) -> None:
        self._kept = Slices(_NONE, _NONE, _NONE, _NONE, _NONE)
        self._depth = _NONE

    def add(self, slices: Slices, until: int | None = None) -> Nested:
        """Nest ``slices``, and return the results in the same order. They must start before ``until``, but not before
        the slices of earlier calls."""
        known = len(self._depth)
        every = Slices(*map(np.concatenate, zip(self._kept, slices, strict=True)))
        order, depth, parent = nest(every.id, every.track, every.start, every.end, self._depth)
        inside = (parent >= 0) & (every.end[parent] >= every.end[order])
        nested = Nested(
            depth, np.where(parent >= 0, every.id[parent], -1), ~inside | (every.kind[parent] != every.kind[order])
        )
        if until is not None:
            kept = _possible_parents(every.track[order], every.start[order], every.end[order], depth, until)
            self._kept, self._depth = Slices(*(column[order[kept]] for column in every)), depth[kept]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        new = place[known:]
        return Nested(nested.depth[new], nested.parent[new], nested.outermost[new])


def nest(
    number: Int64s, track: Int64s, start: Int64s, end: Int64s, known: Int64s = _NONE
) -> tuple[Int64s, Int64s, Int64s]:
    """Sort slices into nesting order, and compute the depth and the parent of each.

    The arrays must have equal length. Return (order, depth, parent). ``order`` sorts the input by track, start,
    descending length and number; if two slices have equal times, the slice that is earlier in the file is the outer
    slice. ``depth[i]`` is the number of slices still open when slice ``order[i]`` starts; ``parent[i]`` is the index in
    the input of the innermost open slice, or -1 at depth 0. A slice that starts inside another is nested in it, even if
    it ends later. ``known`` contains the depths of the first slices, whose parents may be missing.
    """
    order = np.lexsort((number, -end, start, track))
    track, start, end = track[order], start[order], end[order]
    nonempty = end > start
    depth = _open_slices(track, start, end, nonempty)
    if len(known):
        is_known = order < len(known)
        depth[is_known] = known[order[is_known]]
    parent = np.full(len(order), -1, dtype=np.int64)
    by_depth = np.argsort(depth, kind="stable")
    # Sort by level once, because a scan per level would take quadratic time for deep nesting.
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    above: Int64s = levels[0][nonempty[levels[0]]]
    for here in levels[1:]:
        # The parent is the last slice before this one on the level above. The depth implies that it is still open.
        parent[here] = order[above[np.searchsorted(above, here) - 1]]
        above = here[nonempty[here]]
    return order, depth, parent


def _possible_parents(track: Int64s, start: Int64s, end: Int64s, depth: Int64s, until: int) -> Int64s:
    """Return the positions, among the sorted slices, of those that may be parents of slices starting at ``until`` or
    later.
    """
    nonempty = np.flatnonzero(end > start)
    levels = int(depth.max(initial=0)) + 1
    last_first = nonempty[::-1]
    _, last = np.unique(track[last_first] * levels + depth[last_first], return_index=True)
    kept = end[nonempty] > until
    kept[len(nonempty) - 1 - last] = True
    return nonempty[kept]


def _open_slices(track: Int64s, start: Int64s, end: Int64s, nonempty: npt.NDArray[np.bool_]) -> Int64s:
    """For each slice, count the earlier slices on its track that are open at its start.

    Count only ``nonempty`` slices, because empty slices contain nothing.
    """
    earlier: Int64s = np.cumsum(nonempty) - nonempty
    ended = np.empty(len(start), dtype=np.int64)
    bounds = np.flatnonzero(np.diff(track)) + 1
    for first, last in zip([0, *bounds], [*bounds, len(track)], strict=True):
        here = slice(first, last)
        ends = np.sort(end[here][nonempty[here]])
        ended[here] = (earlier[first] if last > first else 0) + np.searchsorted(ends, start[here], side="right")
    depth: Int64s = earlier - ended
    return depth
