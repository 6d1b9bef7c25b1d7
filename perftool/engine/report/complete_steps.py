"""The steps that per-step numbers are based on, and the steps of the slowest rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from perftool.model.report import WHOLE_TRACE, Step
from perftool.units import format_ratio

# A recording may cut off its first and last step.
_CUT_OFF = 2
# Steps are uneven if their mean and their median differ by at least this share; the table _usual_steps uses it, too.
UNEVEN = 0.25
# A run is not compared with others if the share of kernels missing from its recording exceeds theirs by more than this.
# In all complete recordings that we know, each launch of the median step has a kernel. The table lost_kernels has the
# same limit.
MOST_LOST_KERNELS = 0.05
# If a larger share of the kernels is missing, the step time is unknown, as in the table summary.
_MOST = 0.5


def counted(steps: Iterable[Step]) -> list[Step]:
    """The complete ``steps``. A recording without steps counts as one step, unless other ranks have steps."""
    complete = [step for step in steps if not step.partial]
    return [step for step in complete if step.name != WHOLE_TRACE] or complete


def mostly_incomplete(steps: Iterable[Step]) -> Iterator[str]:
    """A sentence for each rank most of whose steps are incomplete, so that the complete ones do not represent them."""
    cut = list(steps)
    complete = Counter(step.rank for step in cut if not step.partial)
    incomplete = Counter(step.rank for step in cut if step.left_out == "incomplete")
    for rank, lost in sorted(incomplete.items()):
        if lost > max(_CUT_OFF, complete[rank]):
            yield f"rank {rank}: {lost:,} of its {lost + complete[rank]:,} steps are incomplete"


def most_kernels_lost(ratios: Mapping[int, float]) -> Iterator[str]:
    """A sentence for each rank whose recording lacks most of the kernels of its steps, so that their ends are unknown.

    ``ratios`` has the share of each rank's kernel launches without device work.
    """
    for rank, ratio in sorted(ratios.items()):
        if ratio > _MOST:
            yield f"rank {rank}: {format_ratio(ratio)} of the kernels that its steps launched are missing"


def of_slowest_rank(steps: Iterable[Step]) -> list[Step]:
    """The counted steps of the rank with the longest median step; if several ranks share it, of the lowest rank.

    Empty without complete steps. Ranks wait for one another, so the slowest one sets the pace. The steps of all ranks
    together would hide a slow rank that has few steps.
    """
    return max(_by_rank(counted(steps)).values(), key=lambda own: (_median_ns(own), -own[0].rank), default=[])


def recorded_per_step(steps: Iterable[Step], recorded_ns: Mapping[int, int]) -> float | None:
    """The length of the recording per step, in ns, without the steps left out; the largest value of all ranks.

    The length of each step left out is subtracted; for an incomplete one, at most the length of a median step.

    ``recorded_ns`` has the length of each rank's recording. None if that length is known for no rank with steps.
    """
    own = _by_rank(step for step in steps if step.name != WHOLE_TRACE)
    per_step = (_per_step(own[rank], length) for rank, length in recorded_ns.items() if rank in own)
    return max((ns for ns in per_step if ns is not None), default=None)


def least_covered(steps: Iterable[Step], recorded_ns: Mapping[int, int]) -> float | None:
    """The share of the recording that complete steps cover, of the rank with the smallest share; None without steps.

    ``recorded_ns`` has the length of each rank's recording.
    """
    own = _by_rank(step for step in counted(steps) if step.name != WHOLE_TRACE)
    shares = (
        sum(step.dur_ns for step in own[rank]) / length
        for rank, length in recorded_ns.items()
        if rank in own and length
    )
    return min(shares, default=None)


def _per_step(steps: Sequence[Step], recorded_ns: int) -> float | None:
    # A recording cuts off at most its first and its last step. With more incomplete steps, all of them count.
    are_cut = sum(step.left_out == "incomplete" for step in steps) <= _CUT_OFF
    left_out = [step for step in steps if step.partial and (are_cut or step.left_out != "incomplete")]
    count = len(steps) - len(left_out)
    usual_ns = _median_ns(counted(steps))
    left_out_ns = sum(min(one.dur_ns, usual_ns) if one.left_out == "incomplete" else one.dur_ns for one in left_out)
    return (recorded_ns - left_out_ns) / count if count else None


def median_step_ns(steps: Iterable[Step]) -> float:
    """The median length of the counted steps of all ranks, in ns; 0 without any."""
    return _median_ns(counted(steps))


def _by_rank(steps: Iterable[Step]) -> dict[int, list[Step]]:
    own: dict[int, list[Step]] = {}
    for step in steps:
        own.setdefault(step.rank, []).append(step)
    return own


def _median_ns(steps: Iterable[Step]) -> float:
    return median([step.dur_ns for step in steps] or [0])
