"""The mean steps of many ranks, side by side."""

from __future__ import annotations

from perftool.model.pictures import RankTimes
from perftool.model.report import BREAKDOWN
from perftool.reporters.html.charts import rank_chart


def rank(number: int, kernel_ns: int) -> RankTimes:
    parts = {**dict.fromkeys(BREAKDOWN, 0), "kernel": kernel_ns, "communication": 1000 - kernel_ns}
    return RankTimes(number, 1, 1000, parts, None, 0, None)


def test_each_rank_has_a_column() -> None:
    chart = rank_chart([rank(number, 500) for number in range(8)])

    assert chart.columns == 8
    assert chart.note == ""


def test_the_rank_that_others_wait_for_is_among_the_columns() -> None:
    chart = rank_chart([rank(number, 900 if number == 254 else 500) for number in range(256)])

    assert chart.columns == 86
    assert chart.live["x"][84:] == ["254", "255"]
    assert chart.note == "each column shows one of 3 neighbouring ranks: the one with the most time outside collectives"
