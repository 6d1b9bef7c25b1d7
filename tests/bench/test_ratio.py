"""The ratio of two forms: its value, and how often its interval covers the true ratio."""

from __future__ import annotations

import random

import pytest

from perftool.bench.harness.ratio import ratio_of
from perftool.model.benchmark import Ratio


def test_few_rounds_give_their_extremes_and_the_coverage() -> None:
    ratio = ratio_of([2.0, 6.0, 4.0], [1.0, 2.0, 1.0])

    assert ratio == Ratio(3.0, 2.0, 4.0, 0.75)


def test_one_round_gives_no_confidence() -> None:
    assert ratio_of([3.0], [2.0]) == Ratio(1.5, 1.5, 1.5, 0.0)


def test_more_rounds_leave_out_extremes() -> None:
    ratio = ratio_of([100.0, 1.0, *range(10, 20)], [1.0] * 12)

    # With 12 rounds, two rounds can be excluded on each side: 1 - 2 * (1 + 12 + 66) / 4096.
    assert (ratio.value, ratio.low, ratio.high) == (14.5, 11.0, 18.0)
    assert ratio.confidence == pytest.approx(0.9614, abs=1e-4)


@pytest.mark.parametrize("rounds", [6, 9, 25, 60])
def test_the_interval_contains_the_median_as_often_as_stated(rounds: int) -> None:
    generator = random.Random(rounds)
    # The times are skewed, as real times are, because other programs run occasionally.
    trials = [
        ratio_of([2.0 * generator.lognormvariate(0.0, 0.3) for _ in range(rounds)], [1.0] * rounds) for _ in range(2000)
    ]

    held = sum(trial.low <= 2.0 <= trial.high for trial in trials) / len(trials)

    assert trials[0].confidence >= 0.95
    assert held == pytest.approx(trials[0].confidence, abs=0.02)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.01, 2.0, "win"), (0.9, 1.1, "no win"), (1.0, 1.0, "no win"), (0.5, 0.99, "loss")]
)
def test_a_verdict_needs_an_interval_without_1(low: float, high: float, verdict: str) -> None:
    assert Ratio(1.0, low, high, 0.95).verdict == verdict


def test_one_round_gives_no_verdict() -> None:
    assert ratio_of([3.0], [1.0]).verdict == "unknown"
