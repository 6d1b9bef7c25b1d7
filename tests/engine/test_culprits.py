"""The first finding names whom all wait for, and what it does more than the others; the headline says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from culprits import LATE, Slow, another_each_step, nobody, one_group, one_rank, one_step, write_run

import perftool
from perftool.engine.analysis import analyze
from perftool.errors import PerfToolError
from perftool.model.report import Report

ACCUSERS = {"COL103", "COL109", "COL110", "COL111", "COL112"}


@dataclass(frozen=True)
class Case:
    """A run in which ``slow`` puts the culprit, and what the first finding says of it."""

    slow: Slow
    code: str
    rank: int | None
    says: str
    # What the run without the culprit takes less for a step.
    gain_ns: int = 1_000 * LATE


def cases(ranks: int, who: int, size: int) -> dict[str, Case]:
    label = f"rank {who} (node{who // size:03d}) is late in 4 of 4 steps: "
    host, first = f"node{who // size:03d}", who // size * size
    waiting = f"; {ranks - 1} ranks wait 40.0 ms"
    beside = f"; {ranks - size} ranks wait 40.0 ms"
    others = "one other group" if ranks == 2 * size else f"the median of {ranks // size - 1} other groups"
    reasons = {
        "compute": "its kernels take 110 ms, those of the median rank 70.0 ms",
        "loader": "its device waits 40.1 ms for the data loader, that of the median rank 150 us",
        "host": "its device waits 40.1 ms for its host, that of the median rank 200 us",
        "copies": "its copies take 40.3 ms, those of the median rank 300 us",
    }
    return {
        **{name: Case(one_rank(name, who), "COL103", who, label + why + waiting) for name, why in reasons.items()},
        "a link": Case(
            one_group("link", who, size), "COL109", None,
            f"the group of ranks {first}-{first + size - 1} ({host}) is slow: its collectives take 42.0 ms a step, "
            f"those of {others} of its size 2.00 ms{beside} for it"),
        "a host": Case(
            one_group("compute", who, size), "COL110", None,
            f"host {host} is late with all its {size} ranks in 4 of 4 steps: its kernels take 110 ms, "
            f"those of the median rank elsewhere 70.0 ms{beside}"),
        "another each step": Case(
            another_each_step("compute", ranks), "COL111", None, "another rank is late in 4 of 4 steps (rank 1 ("),
        "one step": Case(
            one_step("loader", who, 2), "COL112", who,
            f"rank {who} ({host}) is late in step 2, not in the other 3: its device waits 40.1 ms for the data loader, "
            f"that of the median rank 150 us{waiting}", 1_000 * LATE // 4),
    }  # fmt: skip


def assert_blamed(report: Report, case: Case) -> None:
    first = report.findings[0]
    assert (first.code, first.rank) == (case.code, case.rank)
    assert first.message.startswith(case.says)
    assert report.verdict.headline == f"{first.message[:1].upper()}{first.message[1:]}."
    assert {found.code for found in report.findings} & ACCUSERS == {case.code}
    # What goes is what the culprit alone does, give or take how much ranks differ by.
    assert first.gain
    assert first.gain.kind == "predicted"
    assert first.gain.ns_per_step == pytest.approx(case.gain_ns, rel=0.01)
    assert report.replayed_run
    assert report.replayed_run.error_ratio == 0
    # What the victims show is that waiting, and claims little of its own.
    victims = [found for found in report.findings if found.rank != case.rank and found.code in ("COL102", "GAP101")]
    assert [found.message for found in victims if found.gain and found.gain.ns_per_step > 3_000_000] == []


OF_EIGHT = cases(8, who=5, size=4)
OF_MANY = cases(256, who=131, size=8)


@pytest.mark.parametrize("name", OF_EIGHT)
def test_the_culprit_comes_first(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, 8, OF_EIGHT[name].slow, skew=200_000.0)
    assert_blamed(analyze([str(tmp_path)]), OF_EIGHT[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_MANY)
def test_the_culprit_comes_first_of_many(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, 256, OF_MANY[name].slow, per_host=8, skew=200_000.0)
    assert_blamed(analyze([str(tmp_path)]), OF_MANY[name])


def test_without_a_culprit_nobody_is_accused(tmp_path: Path) -> None:
    write_run(tmp_path, 8, nobody, skew=200_000.0)
    assert analyze([str(tmp_path)]).findings == ()


def test_of_two_ranks_that_are_late_together_none_is_accused(tmp_path: Path) -> None:
    slow = one_rank("compute", 5)
    # A rank of each host, so that no host is late as a whole either.
    write_run(tmp_path, 8, lambda rank, number: slow(5 if rank in (2, 5) else 0, number))

    found = analyze([str(tmp_path)]).findings

    # Within its own group each of the two is late alone; among all ranks nobody is.
    assert {one.rank for one in found if one.code == "COL103"} == {2, 5}
    assert [one.subject for one in found if one.code in ACCUSERS - {"COL103"}] == []


def test_of_two_ranks_of_a_group_that_are_late_together_none_is_accused(tmp_path: Path) -> None:
    slow = one_rank("compute", 5)
    write_run(tmp_path, 8, lambda rank, number: slow(5 if rank in (5, 6) else 0, number))

    found = analyze([str(tmp_path)]).findings

    assert [one.message for one in found if one.code in ACCUSERS] == []
    assert [(one.rank, one.message.split(" a step")[0]) for one in found if one.code == "COL108"] == [
        (None, "2 ranks compute up to 110 ms")
    ]


def test_the_culprit_is_found_among_missing_cut_and_copied_ranks(tmp_path: Path) -> None:
    write_run(tmp_path, 8, one_rank("loader", 5), skew=200_000.0)
    (tmp_path / "node000/rank2.json").unlink()
    whole = (tmp_path / "node000/rank3.json").read_bytes()
    (tmp_path / "node000/rank3.json").write_bytes(whole[: len(whole) - 40])
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies/rank5.json").write_bytes((tmp_path / "node001/rank5.json").read_bytes())

    report = analyze([str(tmp_path)])

    first = report.findings[0]
    assert (first.code, first.rank, first.evidence["cause_name"]) == ("COL103", 5, "dataloader")
    assert {"TRC101", "TRC107", "TRC108"} <= {found.code for found in report.findings}
    assert [row.rank for row in report.ranks] == [0, 1, 3, 4, 5, 6, 7]


def test_what_a_run_takes_without_what_keeps_it_waiting_is_asked_of_all_ranks(tmp_path: Path) -> None:
    write_run(tmp_path, 2, one_rank("loader", 1), per_host=2, steps=2)

    found = perftool.whatif(tmp_path, ["COL103"])

    assert (found.rank, found.ranks, found.steps, found.error_ratio, found.why_not) == (None, 2, 2, 0.0, None)
    assert found.predicted_step_ns is not None
    assert found.measured_step_ns == found.predicted_step_ns + 1_000 * LATE
    with pytest.raises(PerfToolError, match="COL103 is about all ranks together, --rank 1 about one"):
        perftool.whatif(tmp_path, ["COL103"], rank=1)
    with pytest.raises(PerfToolError, match=r"COL110 .slow-host.: it finds nothing here"):
        perftool.whatif(tmp_path, ["COL110"])


def test_that_a_rule_finds_the_victims_of_many_ranks_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, 4, one_rank("loader", 1), per_host=2, steps=2)
    monkeypatch.setattr("perftool.engine.rules.evaluate.MOST_FINDINGS", 1)
    codes = [found.code for found in analyze([str(tmp_path)]).findings]
    assert codes.count("COL102") == 3
    assert "TRC001" not in codes
