"""Operations on intervals of host threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from perftool.replay.recording import Bools, Int64s

# Thread, start and end.
Span = tuple[int, int, int]


class IntervalReach:
    """Looks up the latest end among a thread's intervals that begin by a given time."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        mine = np.array(sorted(spans), dtype=np.int64).reshape(-1, 2)
        self._begins = mine[:, 0]
        self._reach = np.maximum.accumulate(mine[:, 1])

    def reach(self, times: Int64s) -> Int64s:
        """For each of ``times``, return the latest end of the intervals that begin at or before it, or the smallest
        integer if there are none."""
        at = np.searchsorted(self._begins, times, side="right") - 1
        return np.where(at >= 0, self._reach[np.maximum(at, 0)], np.iinfo(np.int64).min)


def covers(spans: Iterable[Span]) -> dict[int, IntervalReach]:
    """Group ``spans`` by thread."""
    grouped: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for thread, ts, end in spans:
        grouped[thread].append((ts, end))
    return {thread: IntervalReach(mine) for thread, mine in grouped.items()}


def of_threads(thread: Int64s, wanted: Iterable[int]) -> Iterator[tuple[int, Int64s]]:
    """Yield each of the threads ``wanted`` with its positions in ``thread``."""
    order = np.argsort(thread, kind="stable")
    ordered = thread[order]
    for number in wanted:
        begin, end = np.searchsorted(ordered, number), np.searchsorted(ordered, number, side="right")
        yield number, order[begin:end]


def inside(thread: Int64s, time: Int64s, spans: Iterable[Span]) -> Bools:
    """Return a mask of the times that are inside one of ``spans``; starts count as inside, ends do not."""
    found: Bools = np.zeros(len(time), dtype=bool)
    covered = covers(spans)
    for number, at in of_threads(thread, covered):
        found[at] = covered[number].reach(time[at]) > time[at]
    return found


def saved(stretches: Sequence[tuple[int, int, float]]) -> tuple[Int64s, Int64s]:
    """Return times, and the total savings (ns) before each of them. Each of ``stretches`` is (ts, end, factor), where
    ``factor`` is the share of its time that remains. Where stretches overlap, the one that saves most counts.
    """
    cuts = sorted({moment for ts, end, _ in stretches for moment in (ts, end)})
    waiting = sorted(stretches, reverse=True)
    open_ones: list[tuple[float, int]] = []
    best = []
    for moment in cuts[:-1]:
        while waiting and waiting[-1][0] <= moment:
            _, end, factor = waiting.pop()
            heappush(open_ones, (factor, end))
        while open_ones and open_ones[0][1] <= moment:
            heappop(open_ones)
        best.append(1.0 - open_ones[0][0] if open_ones else 0.0)
    times = np.array(cuts, dtype=np.int64)
    return times, np.concatenate([[0.0], np.cumsum(np.array(best) * np.diff(times))])
