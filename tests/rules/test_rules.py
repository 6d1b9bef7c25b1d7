"""Runs every case of every rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from rule_cases import all_cases, pack

from perftool.engine.rule_tests.cases import Case, differences, run_case


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.code}-{case.name.replace(' ', '-')}")
def test_case(case: Case, tmp_path: Path) -> None:
    outcome = run_case(case, pack()[case.code], tmp_path)

    assert differences(case, pack()[case.code], outcome, tmp_path) == []
    assert all(finding.gain is None or 0 <= finding.gain.share_of_step <= 1 for finding in outcome.findings)
