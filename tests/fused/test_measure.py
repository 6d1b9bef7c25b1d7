"""The shared measuring code of the benchmarks, on invented timings."""

from __future__ import annotations

import math

import pytest

from benchmarks.fused.measure import Contender, Race, Timing, race, table
from benchmarks.fused.shapes import SETS


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((1.0, 1.1, 0.9), "win"), ((2.0, 1.9, 2.2), "no win"), ((5.0, 5.5, 4.5), "loss")],
)
def test_the_verdict_follows_the_spread(ours, verdict):
    result = Race((Timing("naive", (2.0, 2.1, 2.0), 0), Timing("ours", ours, 3)), 10.0)
    ratio = result.ratio("naive", "ours")
    assert ratio.verdict == verdict
    assert ratio.of_minima == pytest.approx(2.0 / min(ours))
    assert ratio.low <= ratio.of_medians <= ratio.high


def test_a_race_runs_every_contender_equally_often():
    runs = []
    contenders = [Contender(name, lambda name=name: runs.append(name)) for name in ("a", "b")]
    result = race(contenders, rounds=4, repeat=2)
    assert sorted(runs) == ["a"] * (3 + 8) + ["b"] * (3 + 8)
    assert [(timing.name, len(timing.rounds)) for timing in result.timings] == [("a", 4), ("b", 4)]
    assert result.bandwidth > 0


def test_what_prepares_a_run_is_not_timed_with_it():
    steps = []
    contender = Contender("a", lambda: steps.append("run"), prepare=lambda: steps.append("prepare"))
    race([contender], rounds=1, repeat=2)
    assert steps == ["prepare", "run"] * 5


def test_a_table_is_markdown():
    assert table(["op", "ms"], [["SGD", "1.0"]]) == "| op | ms |\n| --- | --- |\n| SGD | 1.0 |"


@pytest.mark.parametrize(
    ("name", "tensors", "millions"),
    [
        ("ResNet-50", 161, 25.6),
        ("BERT-base", 199, 109.5),
        ("ViT-B/16", 152, 86.6),
        ("EfficientNet-B0", 213, 5.3),
        ("MobileNetV2", 158, 3.5),
        ("LoRA, Llama 1B", 224, 11.3),
        ("2,000 x 64", 2000, 0.13),
    ],
)
def test_the_sets_have_the_sizes_of_their_models(name, tensors, millions):
    shapes = SETS[name]()
    assert len(shapes) == tensors
    assert sum(map(math.prod, shapes)) / 1e6 == pytest.approx(millions, abs=0.05)
