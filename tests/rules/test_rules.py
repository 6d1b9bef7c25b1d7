"""Runs all cases of all rules, most of them as ranks of one run."""

from __future__ import annotations

from pathlib import Path

import pytest
from company import alone, differences_alone, differences_in_company, groups
from rule_cases import all_cases

from perftool.engine.rule_tests.cases import Case


@pytest.mark.parametrize("cases", alone(), ids=lambda cases: f"{cases[0].code}-{cases[0].name.replace(' ', '-')}")
def test_cases_alone(cases: tuple[Case, ...], tmp_path: Path) -> None:
    assert differences_alone(cases, tmp_path) == {}


@pytest.mark.parametrize("cases", groups(), ids=lambda cases: f"{cases[0].code}-{cases[-1].code}")
def test_cases_as_ranks_of_one_run(cases: tuple[Case, ...], tmp_path: Path) -> None:
    differing = differences_in_company(cases, tmp_path)
    assert differing == {}, str(differing)


def test_every_case_runs() -> None:
    ran = {(case.code, case.name) for cases in (*alone(), *groups()) for case in cases}

    assert ran == {(case.code, case.name) for case in all_cases()}
