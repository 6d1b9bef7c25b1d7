from __future__ import annotations

from dataclasses import replace

from perftool.engine.rules.ranking import claimed_once, ranked
from perftool.model.choices import Severity
from perftool.model.report import Finding, Gain, Location


def finding(code: str, gain: int | None, rank: int | None = 0, severity: Severity = "warning") -> Finding:
    return Finding(
        code=code, name=code.lower(), severity=severity, confidence="high", subject="s", message="m", why="w", fix="f",
        rank=rank, location=Location(), related=(), evidence={}, gain=None if gain is None else Gain(gain, 0.1),
        fingerprint="f", benchmark=None,
    )  # fmt: skip


def codes(*findings: Finding) -> list[str]:
    explained_by = {"GAP101": ("A001", "B")}
    return [found.code for found in ranked(claimed_once(findings, explained_by), explained_by)]


def test_the_largest_gain_comes_first_and_none_last() -> None:
    assert codes(finding("A001", None), finding("B001", 5), finding("C001", 9)) == ["C001", "B001", "A001"]


def test_without_gains_the_most_severe_comes_first() -> None:
    assert codes(finding("A001", None, severity="info"), finding("B001", None, severity="error")) == ["B001", "A001"]


def test_a_symptom_ranks_by_what_the_largest_cause_leaves_unexplained() -> None:
    assert codes(finding("GAP101", 100), finding("A001", 60), finding("B001", 30)) == ["A001", "GAP101", "B001"]
    assert codes(finding("GAP101", 100), finding("A001", 3)) == ["GAP101", "A001"]
    assert codes(finding("GAP101", 100), finding("A001", 100)) == ["A001", "GAP101"]


def test_what_is_no_cause_explains_nothing() -> None:
    assert codes(finding("GAP101", 100), finding("C001", 60)) == ["GAP101", "C001"]


def test_a_cause_on_another_rank_explains_nothing() -> None:
    assert codes(finding("GAP101", 100, rank=0), finding("A001", 60, rank=1)) == ["GAP101", "A001"]
    assert codes(finding("GAP101", 100, rank=0), finding("A001", 60, rank=None)) == ["A001", "GAP101"]


def test_what_a_run_loses_by_a_rank_comes_before_what_that_rank_shows_of_it() -> None:
    def first(own: int, gain: Gain, rank: int = 3) -> str:
        late = replace(finding("COL103", 0, rank=3), gain=gain)
        return ranked([finding("GAP102", own, rank=rank), late], {}, {"COL103"})[0].code

    bound, predicted = Gain(100, 0.1), Gain(100, 0.1, "predicted")
    assert [first(own, bound) for own in (150, 151)] == ["COL103", "GAP102"]
    # A bound may be far above what a replay says of the same thing.
    assert [first(own, predicted) for own in (300, 301)] == ["COL103", "GAP102"]
    assert first(101, predicted, rank=2) == "GAP102"
