"""What stands above and beside the verdict: titles of findings, and where inputs are from."""

from __future__ import annotations

from perftool.model.report import Finding, Report

_ORIGINS = ("handMade", "simulated")


def finding_title(finding: Finding, report: Report) -> str:
    """What a finding is, in a few words: the summary of its rule, or its name when the rule is not at hand."""
    return next((rule.summary for rule in report.rules if rule.code == finding.code), finding.name.replace("-", " "))


def origins(report: Report) -> list[str]:
    """What to say, above all else, about inputs that no device left behind."""
    told = {(issue.message, read.path) for read in report.inputs for issue in read.issues if issue.kind in _ORIGINS}
    messages = sorted({message for message, _ in told})
    return [f"{message[:1].upper()}{message[1:]}: {', '.join(sorted(p for m, p in told if m == message))}"
            for message in messages]  # fmt: skip
