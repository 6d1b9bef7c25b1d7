"""Naive sums of intervals, for comparison with those of the analysis."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
"""Start and end in nanoseconds, end exclusive."""


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return sorted, disjoint intervals that cover the same time as ``intervals``."""
    result: list[Interval] = []
    for start, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def union_ns(intervals: Iterable[Interval]) -> int:
    """Return the length of the union, in which overlaps count once."""
    return sum(end - start for start, end in merged(intervals))


def overlap_ns(left: Iterable[Interval], right: Iterable[Interval]) -> int:
    """Return the length of the time that both sides cover."""
    first, second = list(left), list(right)
    return union_ns(first) + union_ns(second) - union_ns(first + second)


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of the intervals that lie inside the window."""
    low, high = window
    return [(max(start, low), min(end, high)) for start, end in intervals if start < high and end > low]
