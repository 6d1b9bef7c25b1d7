"""The first finding names the rank that all wait for, and what it does more than the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from culprits import write_run

from perftool.engine.analysis import analyze

REASONS = {
    "compute": "its kernels take",
    "loader": "it waits for data for 40.0 ms a step, on the median rank 200 us",
    "host": "its device is idle, while the host does other things, for",
}


@pytest.mark.parametrize("skew", [0.0, 200_000.0], ids=["one clock", "200 ms apart"])
@pytest.mark.parametrize("culprit", REASONS)
def test_the_culprit_comes_first(culprit: str, skew: float, tmp_path: Path) -> None:
    write_run(tmp_path, 8, culprit, who=5, skew=skew)

    findings = analyze([str(tmp_path)]).findings

    assert (findings[0].code, findings[0].rank) == ("COL103", 5)
    assert REASONS[culprit] in findings[0].message
    # What the victims show is that waiting, and claims nothing of its own.
    victims = [found for found in findings if found.rank != 5 and found.code in ("COL102", "GAP101")]
    assert [found.message for found in victims if found.gain and found.gain.ns_per_step > 2_000_000] == []


@pytest.mark.slow
@pytest.mark.parametrize("culprit", REASONS)
def test_the_culprit_comes_first_of_many(culprit: str, tmp_path: Path) -> None:
    write_run(tmp_path, 256, culprit, who=131)

    first = analyze([str(tmp_path)]).findings[0]

    assert (first.code, first.rank) == ("COL103", 131)
    assert REASONS[culprit] in first.message


def test_without_a_culprit_nobody_is_accused(tmp_path: Path) -> None:
    write_run(tmp_path, 8, "none", who=5)
    assert [found for found in analyze([str(tmp_path)]).findings if found.code in ("COL103", "COL108")] == []


def test_of_two_ranks_that_are_late_together_none_is_accused(tmp_path: Path) -> None:
    write_run(tmp_path, 8, "compute", who=5)
    slow = (tmp_path / "rank5.json").read_bytes()
    (tmp_path / "rank4.json").write_bytes(slow.replace(b'"rank":5', b'"rank":4').replace(b'"rank": 5', b'"rank": 4'))
    assert [found for found in analyze([str(tmp_path)]).findings if found.code == "COL103"] == []
