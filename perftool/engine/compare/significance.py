"""Tests whether a change of step time is more than noise."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.diff import Interval, Verdict

# With fewer steps, the bootstrap interval of the median is not meaningful.
FEWEST_STEPS = 5
CONFIDENCE = 0.95
_RESAMPLES = 2000
_BATCH = 100
_SEED = 0


def change_of_median(base: Sequence[int], new: Sequence[int]) -> Interval | None:
    """Return the relative change of the median from ``base`` to ``new``, or None if there are too few values, or if the
    base median is 0.

    Uses a percentile bootstrap (Efron 1979): both samples are redrawn with replacement 2000 times, and the interval
    contains the middle 95 % of the changes. The seed is fixed, so that equal inputs give equal bounds. The interval
    does not account for the variation between runs of the same code.
    """
    import numpy as np

    if min(len(base), len(new)) < FEWEST_STEPS:
        return None
    one, other = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
    if not np.median(one) > 0:
        return None
    generator = np.random.default_rng(_SEED)
    changes = []
    for _ in range(_RESAMPLES // _BATCH):
        before = np.median(generator.choice(one, (_BATCH, len(one))), axis=1)
        after = np.median(generator.choice(other, (_BATCH, len(other))), axis=1)
        changes.append(after / np.maximum(before, 1.0) - 1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(np.concatenate(changes), [tail, 100 - tail])
    change = float(np.median(other) / np.median(one) - 1)
    return Interval(change, float(low), float(high), CONFIDENCE)


def verdict_on(interval: Interval | None) -> Verdict:
    """Return ``slower`` or ``faster`` only if the whole interval is on one side of zero."""
    if interval is None:
        return "cannot be judged"
    if interval.low > 0:
        return "slower"
    return "faster" if interval.high < 0 else "no significant change"
