"""Sets the severity of findings by their cost and certainty, in the same way for all rules."""

from __future__ import annotations

from dataclasses import replace

from perftool.model.choices import Confidence, Severity
from perftool.model.report import Finding, GainKind
from perftool.model.rule import Rule

# A loss of at least this share of the step, weighted by certainty, is a warning.
WARNING_SHARE = 0.05
# A replay or a trial gives the gain itself; evidence only gives an upper bound.
KIND_WEIGHTS: dict[GainKind, float] = {"predicted": 1.0, "tried": 1.0, "bound": 0.5}
CONFIDENCE_WEIGHTS: dict[Confidence, float] = {"high": 1.0, "medium": 0.5, "low": 0.25}


def graded(finding: Finding, rule: Rule) -> Finding:
    """Set the severity of ``finding`` according to its cost.

    The severity of ``rule`` applies if the user set it, if it is "error", or if the finding has no advice or no gain. A
    symptom gets the severity "info" if its time is counted as the gain of its cause.
    """
    if rule.severity_is_set or rule.severity == "error" or not finding.advice:
        return finding
    if finding.gain is None:
        return replace(finding, severity="info") if finding.explained_by else finding
    return replace(finding, severity=severity_of(finding))


def severity_of(finding: Finding) -> Severity:
    """Return the severity of ``finding`` by its gain, as a share of the step weighted by certainty."""
    gain = finding.gain
    if gain is None:
        return finding.severity
    certainty = KIND_WEIGHTS[gain.kind] * CONFIDENCE_WEIGHTS[finding.confidence]
    return "warning" if gain.share_of_step * certainty >= WARNING_SHARE else "info"
