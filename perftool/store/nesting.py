"""How the slices of a track nest: depth and parent of each, for millions of slices at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


def nest(track: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Order slices as they nest and say in what each lies.

    Takes equally long arrays; returns (order, depth, parent): ``order`` sorts the input by track, start and longer
    first; ``depth[i]`` is the number of slices still open when slice ``order[i]`` starts; ``parent[i]`` is the
    index into the input of the innermost of these, -1 at depth 0. A slice that begins inside another and outlasts
    it counts as inside.
    """
    order = np.lexsort((-end, start, track))
    track, start, end = track[order], start[order], end[order]
    lasting = end > start
    depth = _open_slices(track, start, end, lasting)
    parent = np.full(len(order), -1, dtype=np.int64)
    by_depth = np.argsort(depth, kind="stable")
    # One look at all slices for each level would take a time that grows with the square of the deepest nesting.
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    above: Int64s = levels[0][lasting[levels[0]]]
    for here in levels[1:]:
        # The slice one level up that started last is still open, or this one would not be at this depth.
        parent[here] = order[above[np.searchsorted(above, here) - 1]]
        above = here[lasting[here]]
    return order, depth, parent


def _open_slices(track: Int64s, start: Int64s, end: Int64s, lasting: npt.NDArray[np.bool_]) -> Int64s:
    """Number of earlier slices of the same track that have not ended when each slice starts.

    Slices of no length contain nothing, so only the ``lasting`` ones count.
    """
    earlier: Int64s = np.cumsum(lasting) - lasting
    ended = np.empty(len(start), dtype=np.int64)
    bounds = np.flatnonzero(np.diff(track)) + 1
    for first, last in zip([0, *bounds], [*bounds, len(track)], strict=True):
        here = slice(first, last)
        ends = np.sort(end[here][lasting[here]])
        ended[here] = (earlier[first] if last > first else 0) + np.searchsorted(ends, start[here], side="right")
    depth: Int64s = earlier - ended
    return depth
