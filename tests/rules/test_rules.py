"""Runs every case of every rule: most as ranks of one run, so that the tables are made once for a dozen cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from company import alone, differences_in_company, groups
from rule_cases import all_cases, pack

from perftool.engine.rule_tests.cases import Case, differences, run_case


@pytest.mark.parametrize("case", alone(), ids=lambda case: f"{case.code}-{case.name.replace(' ', '-')}")
def test_case(case: Case, tmp_path: Path) -> None:
    rule = pack()[case.code]

    outcome = run_case(case, rule, tmp_path)

    assert differences(case, rule, outcome, tmp_path) == []
    assert all(finding.gain is None or 0 <= finding.gain.share_of_step <= 1 for finding in outcome.findings)


@pytest.mark.parametrize("cases", groups(), ids=lambda cases: f"{cases[0].code}-{cases[-1].code}")
def test_cases_as_ranks_of_one_run(cases: tuple[Case, ...], tmp_path: Path) -> None:
    assert differences_in_company(cases, tmp_path) == {}


def test_every_case_runs() -> None:
    ran = {(case.code, case.name) for case in (*alone(), *(case for group in groups() for case in group))}

    assert ran == {(case.code, case.name) for case in all_cases()}
