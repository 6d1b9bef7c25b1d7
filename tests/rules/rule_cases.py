"""All shipped rules and their cases."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perftool.engine.rule_tests.cases import Case, load_cases
from perftool.engine.rules.pack import builtin_folder, load_pack
from perftool.model.rule import Rule

CASES_DIR = Path(__file__).parent
GAUDI_DIR = CASES_DIR / "gaudi"


@cache
def pack() -> dict[str, Rule]:
    """Return the shipped rules by code."""
    return {rule.code: rule for rule in load_pack(builtin_folder())}


@cache
def all_cases() -> tuple[Case, ...]:
    """Return all cases of all rules, in file order. Cases with Gaudi inputs come last."""
    return tuple(case for path in case_files() for case in load_cases(path))


def case_files() -> list[Path]:
    """Return the files with cases, one for each rule and kind of input."""
    return [*sorted(CASES_DIR.glob("*.toml")), *sorted(GAUDI_DIR.glob("*.toml"))]
