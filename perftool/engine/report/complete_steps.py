"""Selects the steps on which numbers per step are based, and those of the slowest rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from perftool.model.report import WHOLE_TRACE, Step
from perftool.units import format_ns, format_ratio

# The first and the last step of a recording may be truncated.
_CUT_OFF = 2
# Steps are uneven if their mean and median differ by at least this share. The table _usual_steps uses the same limit.
UNEVEN = 0.25
# A start-up takes at most this many steps, as in the table _step_bounds. If a run has more warm-up steps than that, and
# more than the run that it is compared with, it compiles again.
_START_UP = 2
# A run is not compared with others if the share of kernels missing from its recording exceeds the share missing from
# theirs by more than this. In every complete recording that we have seen, each launch in the median step has a kernel.
# The table lost_kernels uses the same limit.
MOST_LOST_KERNELS = 0.05
# If more kernels are missing, the step time is unknown, as in the table summary.
_MOST = 0.5
_DECODE = "decode"


def counted(steps: Iterable[Step]) -> list[Step]:
    """Return the complete ``steps``. A recording without steps counts as one step, unless other ranks have steps."""
    complete = [step for step in steps if not step.partial]
    return [step for step in complete if step.name != WHOLE_TRACE] or complete


def mostly_incomplete(steps: Iterable[Step]) -> Iterator[str]:
    """Yield a sentence for each rank whose steps are mostly incomplete, so that the complete ones are not
    representative.
    """
    cut = list(steps)
    complete = Counter(step.rank for step in cut if not step.partial)
    incomplete = Counter(step.rank for step in cut if step.left_out == "incomplete")
    for rank, lost in sorted(incomplete.items()):
        if lost > max(_CUT_OFF, complete[rank]):
            yield f"rank {rank}: {lost:,} of its {lost + complete[rank]:,} steps are incomplete"


def most_kernels_lost(ratios: Mapping[int, float]) -> Iterator[str]:
    """Yield a sentence for each rank whose recording lacks most kernels of its steps, so that the ends of steps are
    unknown.

    ``ratios`` maps ranks to the share of their kernel launches that have no device work.
    """
    for rank, ratio in sorted(ratios.items()):
        if ratio > _MOST:
            yield f"rank {rank}: {format_ratio(ratio)} of the kernels that its steps launched are missing"


def of_slowest_rank(steps: Iterable[Step]) -> list[Step]:
    """Return the counted steps of the rank with the longest median step, or of the lowest such rank. The result is
    empty if no rank has steps.

    Ranks wait for one another, so the slowest one sets the pace. Taking the steps of all ranks together would hide a
    slow rank with few steps.
    """
    return max(_by_rank(counted(steps)).values(), key=lambda own: (_median_ns(own), -own[0].rank), default=[])


def recorded_per_step(
    steps: Iterable[Step], recorded_ns: Mapping[int, int], *, with_warm_up: bool = False
) -> float | None:
    """Return the length of the recording per step in ns, from the rank where it is largest, or None if it is unknown.

    Partial steps are not counted, and their length is subtracted (for an incomplete step, at most the median step).
    ``with_warm_up`` counts the warm-up steps after the start-up. ``recorded_ns`` maps ranks to the lengths of their
    recordings.
    """
    own = _by_rank(step for step in steps if step.name != WHOLE_TRACE)
    per_step = (_per_step(own[rank], length, with_warm_up) for rank, length in recorded_ns.items() if rank in own)
    return max((ns for ns in per_step if ns is not None), default=None)


def warm_up_steps(steps: Iterable[Step]) -> int:
    """Return the number of warm-up steps, from the rank with the most."""
    return max(Counter(step.rank for step in steps if step.left_out == "warm-up").values(), default=0)


def lost_time(run: str, after_ns: float, usual: str, before_ns: float, limit: float) -> str:
    """Return a sentence if the recording of ``run`` takes much longer per step than ``before_ns``: time must then have
    been lost between steps or in a few steps, which the median step does not show. Otherwise, return an empty string.

    ``limit``: the share by which the median step may have grown.
    """
    if after_ns <= before_ns * (1 + limit + UNEVEN):
        return ""
    return (
        f"{run} is not judged: its recording takes {format_ns(after_ns)} per step ({usual} {format_ns(before_ns)}), "
        "but its median step grew less, so time is lost between steps or in a few steps"
    )


def slow_iterations(
    run: str, after_ns: Mapping[str, float], usual: str, before_ns: Mapping[str, float], limit: float
) -> str:
    """Return a sentence if the decodes of a server take much longer on average than before, which the median iteration
    does not show; otherwise, return an empty string. The times are means, by phase.

    The other phases and the time between iterations are not compared, because they depend on the requests: longer
    prompts take longer to process.
    """
    after, before = after_ns.get(_DECODE), before_ns.get(_DECODE)
    if after is None or before is None or after <= before * (1 + limit + UNEVEN):
        return ""
    return (
        f"{run} is not judged: a decode iteration takes {format_ns(after)} on average ({usual} {format_ns(before)}), "
        "but the median iteration grew less, so some iterations are slow"
    )


def lost_to_warm_up(
    run: str, after: int, after_ns: float, usual: str, before: float, before_ns: float, limit: float
) -> str:
    """Return a sentence if ``run`` has more warm-up steps (``after``) than a start-up takes and than usual
    (``before``), and takes much longer per step if they count: time is then lost to compilation. Otherwise, return an
    empty string."""
    if after <= max(_START_UP, before) or after_ns <= before_ns * (1 + limit + UNEVEN):
        return ""
    return (
        f"{run} is not judged: it has {after:,} warm-up steps ({usual} {before:,g}), and if all but the first "
        f"{_START_UP} count, its recording takes {format_ns(after_ns)} per step ({usual} {format_ns(before_ns)})"
    )


def least_covered(steps: Iterable[Step], recorded_ns: Mapping[int, int]) -> float | None:
    """Return the share of the recording that complete steps cover, from the rank where it is smallest, or None if there
    are none.

    ``recorded_ns`` maps ranks to the lengths of their recordings.
    """
    own = _by_rank(step for step in counted(steps) if step.name != WHOLE_TRACE)
    shares = (
        sum(step.dur_ns for step in own[rank]) / length
        for rank, length in recorded_ns.items()
        if rank in own and length
    )
    return min(shares, default=None)


def _per_step(steps: Sequence[Step], recorded_ns: int, with_warm_up: bool) -> float | None:
    warm_up = [step for step in steps if step.left_out == "warm-up"]
    late = {id(step) for step in sorted(warm_up, key=lambda step: step.ts_ns)[_START_UP:]} if with_warm_up else set()
    # Only the first and the last step can be truncated. If more steps are incomplete, they count as well.
    are_cut = sum(step.left_out == "incomplete" for step in steps) <= _CUT_OFF
    left_out = [
        step for step in steps if step.partial and id(step) not in late and (are_cut or step.left_out != "incomplete")
    ]
    count = len(steps) - len(left_out)
    usual_ns = _median_ns(counted(steps))
    left_out_ns = sum(min(one.dur_ns, usual_ns) if one.left_out == "incomplete" else one.dur_ns for one in left_out)
    return (recorded_ns - left_out_ns) / count if count else None


def median_step_ns(steps: Iterable[Step]) -> float:
    """Return the median length of the counted steps of all ranks, in ns, or 0 if there are none."""
    return _median_ns(counted(steps))


def _by_rank(steps: Iterable[Step]) -> dict[int, list[Step]]:
    own: dict[int, list[Step]] = {}
    for step in steps:
        own.setdefault(step.rank, []).append(step)
    return own


def _median_ns(steps: Iterable[Step]) -> float:
    return median([step.dur_ns for step in steps] or [0])
