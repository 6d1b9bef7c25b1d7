"""Runs every case of every Gaudi rule, and holds what all of them must have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gaudi_cases import CASES_DIR, Case, all_cases, rules, run

from perftool.model.report import Finding


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.code}-{case.name.replace(' ', '-')}")
def test_case(case: Case, tmp_path: Path) -> None:
    report = run(case, tmp_path)

    seen = sorted((_shown(finding, tmp_path) for finding in report.findings), key=_subject)
    expected = sorted(case.findings, key=_subject)
    assert [row["subject"] for row in seen] == [row["subject"] for row in expected]
    for row, wanted in zip(seen, expected, strict=True):
        assert {key: row.get(key) for key in wanted} == pytest.approx(wanted)
    assert case.applicable == (case.code not in [skipped.code for skipped in report.not_applicable])
    assert all(finding.code == case.code for finding in report.findings)
    assert all(finding.gain is None or 0 <= finding.gain.share_of_step <= 1 for finding in report.findings)


def test_every_rule_has_cases_that_fire_and_that_stay_quiet():
    cases = defaultdict(list)
    for case in all_cases():
        cases[case.code].append(bool(case.findings))
    written = {path.stem for path in CASES_DIR.glob("*.toml")}

    assert written <= set(rules())
    assert [code for code in sorted(written) if not any(cases[code])] == []
    assert [code for code in sorted(written) if cases[code].count(False) < 2] == []


def _subject(row: Mapping[str, Any]) -> str:
    return str(row["subject"])


def _shown(finding: Finding, folder: Path) -> Mapping[str, Any]:
    """What a case may check of a finding; the folder of the test is left out of texts."""
    row: dict[str, Any] = {
        "subject": finding.subject,
        "message": finding.message,
        "rank": finding.rank,
        "step": finding.location.step,
        "gain_ns": finding.gain.ns_per_step if finding.gain else None,
        "related": len(finding.related),
        **finding.evidence,
    }
    return {key: value.replace(f"{folder}/", "") if isinstance(value, str) else value for key, value in row.items()}
