"""All rules are graded alike: severity depends on the cost of a finding and on its certainty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from builders import rule_files

from perftool.engine.rules.evaluate import make_finding
from perftool.engine.rules.grading import graded
from perftool.model.choices import Confidence, Severity
from perftool.model.report import Finding, Gain
from perftool.model.rule import Rule


@pytest.fixture
def rule(tmp_path: Path) -> Rule:
    return rule_files.rule(tmp_path)


def finding(rule: Rule, share: float | None, kind: Literal["predicted", "bound"] = "predicted") -> Finding:
    gain = None if share is None else Gain(int(share * 1e6), share, kind)
    return replace(make_finding(rule, {"subject": "all", "n": 1}), gain=gain)


@pytest.mark.parametrize(
    ("share", "kind", "confidence", "severity"),
    [
        (0.36, "bound", "medium", "warning"),
        (0.06, "predicted", "high", "warning"),
        (0.06, "bound", "high", "info"),
        (0.05, "predicted", "high", "warning"),
        (0.0499, "predicted", "high", "info"),
        (0.2, "predicted", "low", "warning"),
        (0.2, "bound", "low", "info"),
        (0.0, "predicted", "high", "info"),
    ],
)
@pytest.mark.parametrize("stated", ["warning", "info"])
def test_the_same_cost_has_the_same_severity_whatever_the_rule(
    rule: Rule,
    share: float,
    kind: Literal["predicted", "bound"],
    confidence: Confidence,
    severity: Severity,
    stated: Severity,
) -> None:
    rule = replace(rule, severity=stated, confidence=confidence)
    assert graded(finding(rule, share, kind), rule).severity == severity


def test_without_a_gain_the_rule_sets_the_severity(rule: Rule) -> None:
    def severity(found: Finding, own: Rule) -> Severity:
        return graded(found, own).severity

    error = replace(rule, severity="error")
    chosen = replace(rule, severity="error", severity_is_set=True)
    quiet = replace(rule, severity="info", severity_is_set=True)
    assert severity(finding(rule, None), rule) == "warning"
    assert severity(finding(error, 0.01), error) == "error"
    assert severity(replace(finding(rule, 0.5), advice=False), rule) == "warning"
    assert severity(finding(chosen, 0.01), chosen) == "error"
    assert severity(finding(quiet, 0.9), quiet) == "info"
    assert severity(replace(finding(rule, None), explained_by="GAP101"), rule) == "info"
