"""Recognises findings that are barely above the threshold of their rule."""

from __future__ import annotations

from perftool.model.report import Finding
from perftool.model.rule import Rule

# A share may differ by up to this factor between two recordings of an unchanged program.
_NEAR = 1.25


def is_near(finding: Finding, rule: Rule | None) -> bool:
    """Whether any share in the evidence equals a threshold of ``rule`` or exceeds it by at most 25 %. Only thresholds
    for shares count."""
    if rule is None:
        return False
    limits = [param.value for param in rule.params if "share" in param.unit and isinstance(param.value, float)]
    shares = [value for key, value in finding.evidence.items() if key.endswith("_ratio") and isinstance(value, float)]
    return any(0 < limit <= share <= _NEAR * limit for limit in limits for share in shares)
