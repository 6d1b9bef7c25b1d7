"""The steps that per-step numbers count, and those of the rank that sets the pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from perftool.model.report import WHOLE_TRACE, Step

# A recording may cut off its first and last step.
_CUT_OFF = 2


def counted(steps: Iterable[Step]) -> list[Step]:
    """The complete ``steps``. A recording in which nothing marks steps counts as one step, unless other ranks have
    steps."""
    complete = [step for step in steps if not step.partial]
    return [step for step in complete if step.name != WHOLE_TRACE] or complete


def mostly_incomplete(steps: Iterable[Step]) -> Iterator[str]:
    """A sentence for each rank whose steps are mostly incomplete, so that the complete ones do not represent them."""
    cut = list(steps)
    complete = Counter(step.rank for step in cut if not step.partial)
    incomplete = Counter(step.rank for step in cut if step.left_out == "incomplete")
    for rank, lost in sorted(incomplete.items()):
        if lost > max(_CUT_OFF, complete[rank]):
            yield f"rank {rank}: {lost:,} of its {lost + complete[rank]:,} steps are incomplete"


def of_slowest_rank(steps: Iterable[Step]) -> list[Step]:
    """The counted steps of the rank with the longest median step, the lowest if several have it.

    Empty without complete steps. Ranks wait for one another, so the slowest one sets the pace. The steps of all ranks
    together would hide a slow rank that has few steps.
    """
    of_rank: dict[int, list[Step]] = {}
    for step in counted(steps):
        of_rank.setdefault(step.rank, []).append(step)
    return max(of_rank.values(), key=lambda own: (_median_ns(own), -own[0].rank), default=[])


def median_step_ns(steps: Iterable[Step]) -> float:
    """The median of the counted steps of all ranks; 0 without any."""
    return _median_ns(counted(steps))


def _median_ns(steps: Iterable[Step]) -> float:
    return median([step.dur_ns for step in steps] or [0])
