"""Waiting ranks: what share of their time in collectives they spend waiting, for which ranks, and in which groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.cluster import Layout, Trouble, simulate

from perftool.engine.analysis import analysed, analyze
from perftool.model.report import Report
from perftool.readers.discover import find_inputs
from perftool.reporters.naming import facts


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report on eight ranks, tp 4 x dp 2, in which the device of rank 6 is slow."""
    folder = tmp_path_factory.mktemp("run")
    simulate(Layout("tp"), [Trouble("device", (6,), 1.3)], steps=2).write(folder)
    return analyze([str(folder)])


def test_findings_of_waiting_ranks_say_how_much_is_waiting(report: Report) -> None:
    (cause,) = (found for found in report.findings if found.code == "COL103")
    waiting = {found.rank: found.message for found in report.findings if found.code == "COL102"}
    assert cause.gain
    assert "per step is spent waiting for rank 6 (COL103)" in waiting[0]
    assert "waiting for rank 6" not in waiting.get(6, "")


def test_a_slow_device_is_checked_by_a_command_of_its_vendor(report: Report) -> None:
    cause = report.findings[0]
    assert "the same number of kernels, each 1.30 times as long, all by the same factor" in cause.message
    assert cause.short_fix == "Compare nvidia-smi -q -d CLOCK,PERFORMANCE with rank 7"
    assert "nvidia-smi -q -d CLOCK,PERFORMANCE" in cause.fix


def test_waiting_is_listed_by_role_and_not_as_busy_time(report: Report) -> None:
    tp, dp = report.groups
    assert (tp.role, tp.size, tp.groups, dp.role, dp.size, dp.groups) == ("tp", 4, 2, "dp", 2, 4)
    # In tp, ranks 4, 5 and 7 wait for their neighbour, rank 6. In dp, ranks 0 to 3 wait for ranks 4 to 7.
    assert [one.ranks for one in tp.waiting] == [(0, 1, 2, 3, 6), (4, 5, 7)]
    assert [one.ranks for one in dp.waiting] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert tp.waiting[1].ns_per_step > 4_000_000
    assert tp.even_links
    assert dp.even_links
    shown = facts(report)
    assert "tp 4 x dp 2" in shown
    assert "2 steps, median 25.3 ms" in shown
    assert shown[-1].startswith("busy 9")
    assert "waiting for ranks" in shown[-1]


def test_the_bubble_of_each_stage_is_a_number(tmp_path: Path) -> None:
    run = simulate(Layout("pp", layers=2, micro=4), [Trouble("device", (4, 5), 1.3)], steps=2)
    run.write(tmp_path)
    with analysed(find_inputs([str(tmp_path)])) as opened:
        _, rows = opened.query("SELECT stage, ranks, compute_ns, bubble_ns, bubble_ratio FROM stages")
    stages, ranks, computes, bubbles, shares = zip(*rows, strict=True)
    assert (stages, ranks) == ((0, 1, 2, 3), ([0, 1], [2, 3], [4, 5], [6, 7]))
    assert computes[2] == pytest.approx(1.3 * computes[1], rel=0.02)
    # A device either computes or waits, except for a little time that the host needs.
    for computed, waited, share in zip(computes, bubbles, shares, strict=True):
        assert computed + waited == pytest.approx(1_000 * run.step_us, rel=0.05)
        assert share == pytest.approx(waited / 1_000 / run.step_us, rel=0.02)
    assert min(bubbles) == bubbles[2]
