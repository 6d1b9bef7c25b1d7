"""Ranks in the terminal: shown side by side, with long lists of ranks shortened."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from perftool.engine.analysis import empty_report
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.report import Finding, Location, RankSummary, Report
from perftool.reporters.console import make_console
from perftool.reporters.naming import facts, run_name
from perftool.reporters.terminal.full import print_full

MS = 1_000_000
PLAIN = RankSummary(0, None, "ok", 2, 5 * MS, 10 * MS, 8 * MS, 2 * MS, 6 * MS, 2 * MS, 1 * MS, 500_000, 0, 0)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def shown(report: Report) -> list[str]:
    out = io.StringIO()
    print_full(report, make_console("never", file=out))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def report_of(*ranks: RankSummary) -> Report:
    return replace(empty_report([]), ranks=ranks)


def test_ranks_are_shown_side_by_side() -> None:
    slow = replace(PLAIN, rank=1, compute_ns=9 * MS, waited_ns=0, offset_ns=-1_250_000)
    silent = RankSummary(7, "node1", "unreadable", 0, *[None] * 10)

    lines = shown(report_of(PLAIN, slow, silent))

    at = lines.index("Ranks, in shares of the window")
    assert lines[at + 1 : at + 6] == [
        "  rank                   steps   median step     busy   compute   exposed   waiting       clock",
        "  0                          2       5.00 ms   80.0 %    60.0 %    10.0 %     5.0 %   +0.000 ms",
        "  1                          2       5.00 ms   80.0 %    90.0 %    10.0 %     0.0 %   -1.250 ms",
        "  7 node1 (unreadable)",
        "  compute per step: least 3.00 ms (rank 0), mean 3.75 ms, most 4.50 ms (rank 1)",
    ]


def test_a_single_rank_needs_no_table() -> None:
    assert not [line for line in shown(report_of(PLAIN)) if line.startswith("Ranks")]


def test_with_many_ranks_those_that_differ_most_are_shown() -> None:
    ranks = [replace(PLAIN, rank=rank, compute_ns=(6 + (rank == 40)) * MS) for rank in range(64)]
    ranks[50] = RankSummary(50, None, "unreadable", 0, *[None] * 10)

    lines = shown(report_of(*ranks))

    at = lines.index("Ranks, in shares of the window; the 16 of 64 that differ most")
    assert [line.split()[0] for line in lines[at + 2 : at + 18]] == [*map(str, range(14)), "40", "50"]


def test_many_plain_inputs_are_one_line() -> None:
    plain = [InputFile(f"rank{rank}.json", "trace", rank, 1024, 10, "ok") for rank in range(9)]
    hurt = InputFile(
        "rank9.json", "trace", 9, 1024, 10, "truncated", (ImportIssue("cut off", 1, "the end is missing"),)
    )

    lines = shown(replace(empty_report([]), inputs=(*plain, hurt)))

    assert lines[:3] == [
        "Read rank0.json … rank8.json  9.00 KiB, 90 events, of 9 ranks, ok",
        "Read rank9.json  1.00 KiB, 10 events, rank 9, truncated",
        "  the end is missing",
    ]


def test_findings_of_several_ranks_are_shown_once() -> None:
    def on(rank: int | None, mark: str = "same") -> Finding:
        place = Location()
        return Finding("GAP101", "n", "info", "high", "s", "it waits", "w", "f", rank, place, (), {}, None, mark, None)

    findings = (on(3), on(0), on(None), on(4, "other"), *(on(rank) for rank in range(5, 30)), on(3))
    lines = shown(replace(empty_report([]), findings=findings))

    said = [line.strip() for line in lines if "it waits" in line or "also on" in line]
    assert said == [
        "rank 3: it waits",
        "also on rank 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 10 more",
        "it waits",
        "rank 4: it waits",
        "rank 3: it waits",
    ]
    assert "Findings: 30" in lines


def test_the_header_says_which_ranks_each_host_runs() -> None:
    hosts = ["node0"] * 3 + ["node1"] * 3
    ranks = [replace(PLAIN, rank=rank, host=host) for rank, host in enumerate(hosts)]
    assert "node0: 0-2; node1: 3-5" in facts(report_of(*ranks))
    assert not [fact for fact in facts(report_of(*ranks[:5], replace(ranks[5], host=None))) if "node" in fact]
    assert not [fact for fact in facts(report_of(*ranks[:3])) if "node0" in fact]


def test_ranks_in_the_folders_of_their_hosts_have_the_name_of_the_folder_above() -> None:
    files = tuple(InputFile(f"runs/job7/node{rank}/rank.json", "trace", rank, 1, 1, "ok") for rank in range(2))
    assert run_name(replace(empty_report([]), inputs=files)) == "job7 (2 ranks)"
