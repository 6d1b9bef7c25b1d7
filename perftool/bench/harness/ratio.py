"""Computes the ratio of two forms timed in the same rounds, with an interval that assumes no distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perftool.model.benchmark import Ratio

_WANTED = 0.95


def ratio_of(naive: Sequence[float], advised: Sequence[float]) -> Ratio:
    """Return the median ratio of paired rounds, with its interval: from the k-th smallest to the k-th largest of n
    rounds. The interval misses the true median if at least n - k + 1 rounds are on one side of that median. The
    binomial distribution gives the probability of this (the interval of the sign test).
    """
    rounds = sorted(a / b for a, b in zip(naive, advised, strict=True))
    skip = 0
    while skip + 1 < (len(rounds) + 1) // 2 and _coverage(len(rounds), skip + 1) >= _WANTED:
        skip += 1
    return Ratio(statistics.median(rounds), rounds[skip], rounds[-1 - skip], _coverage(len(rounds), skip))


def _coverage(rounds: int, skip: int) -> float:
    """Return the probability that the median is between the extremes that remain after removing ``skip`` rounds on each
    side."""
    outside: float = sum(math.comb(rounds, k) for k in range(skip + 1)) / 2**rounds
    return max(0.0, 1.0 - 2.0 * outside)
