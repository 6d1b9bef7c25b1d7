"""Runs every case of every rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cases import Case, all_cases, run

from perftool.model.report import Finding


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.code}-{case.name.replace(' ', '-')}")
def test_case(case: Case, tmp_path: Path) -> None:
    report = run(case, tmp_path)

    found = [finding for finding in report.findings if finding.code == case.code]
    seen = sorted((_shown(finding, str(tmp_path)) for finding in found), key=lambda row: str(row["subject"]))
    expected = sorted(case.findings, key=lambda row: str(row["subject"]))
    assert [row["subject"] for row in seen] == [row["subject"] for row in expected]
    for row, wanted in zip(seen, expected, strict=True):
        assert {key: row.get(key) for key in wanted} == pytest.approx(wanted)
    assert case.applicable == (case.code not in [skipped.code for skipped in report.not_applicable])
    assert all(finding.gain is None or 0 <= finding.gain.share_of_step <= 1 for finding in found)


def _shown(finding: Finding, folder: str) -> Mapping[str, Any]:
    """What a case may check of a finding; the folder of the test is left out of texts."""
    row: dict[str, Any] = {
        "subject": finding.subject,
        "message": finding.message,
        "rank": finding.rank,
        "step": finding.location.step,
        "gain_ns": finding.gain.ns_per_step if finding.gain else None,
        **finding.evidence,
    }
    return {key: value.replace(f"{folder}/", "") if isinstance(value, str) else value for key, value in row.items()}
