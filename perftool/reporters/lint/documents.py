"""Findings of a lint run as JSON: the JSON report, with additional keys for the gate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from perftool.model.choices import SEVERITIES
from perftool.model.lint import LintFinding, LintReport
from perftool.reporters.json import as_dict, dump, finding_dict


def render_lint_json(result: LintReport) -> bytes:
    """Render the report with the key ``lint`` and, in each finding, ``file``, ``help`` and ``baseline_state``."""
    data = as_dict(result.report)
    data["findings"] = [lint_finding_dict(found) for found in result.findings]
    data["lint"] = {
        "counts": {severity: result.count(severity) for severity in SEVERITIES},
        "fails": result.fails,
        "rules": [rule.code for rule in result.rules],
        "stale": [asdict(entry) for entry in result.stale],
        "suppressed": result.suppressed,
    }
    return dump(data, indent=True)


def render_json_lines(result: LintReport) -> bytes:
    """Render each finding as one line of JSON."""
    return b"".join(dump(lint_finding_dict(found)) for found in result.findings)


def lint_finding_dict(found: LintFinding) -> dict[str, Any]:
    """Convert a finding to plain values, including the name of its file."""
    return {
        **finding_dict(found.finding),
        "file": found.file,
        "help": found.finding.fix,
        "baseline_state": found.baseline,
    }
