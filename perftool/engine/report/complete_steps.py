"""The steps that per-step numbers count, and those of the rank that sets the pace."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from perftool.model.report import WHOLE_TRACE, Step


def counted(steps: Iterable[Step]) -> list[Step]:
    """The complete ``steps``. A recording in which nothing marks steps counts as one step, unless other ranks have
    steps."""
    complete = [step for step in steps if not step.partial]
    return [step for step in complete if step.name != WHOLE_TRACE] or complete


def of_slowest_rank(steps: Iterable[Step]) -> tuple[int, ...]:
    """The lengths in ns of the counted steps of the rank with the longest median step, the lowest if several have it.

    Empty without complete steps. Ranks wait for one another, so the slowest one sets the pace. The steps of all ranks
    together would hide a slow rank that has few steps.
    """
    lengths: dict[int, list[int]] = {}
    for step in counted(steps):
        lengths.setdefault(step.rank, []).append(step.dur_ns)
    slowest = max(lengths, key=lambda rank: (median(lengths[rank]), -rank), default=None)
    return () if slowest is None else tuple(lengths[slowest])


def median_step_ns(steps: Iterable[Step]) -> float:
    """The median of the counted steps of all ranks; 0 without any."""
    return median([step.dur_ns for step in counted(steps)] or [0])
