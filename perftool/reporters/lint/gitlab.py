"""Findings as a GitLab Code Quality report."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from perftool.model.lint import LintReport
from perftool.reporters.escape import one_line
from perftool.reporters.json import dump
from perftool.reporters.lint.text import place_of

_SEVERITY = {"error": "major", "warning": "minor", "info": "info"}


def render_gitlab(result: LintReport) -> bytes:
    """Render a JSON array with one object per finding that is not suppressed."""
    return dump(list(_entries(result)), indent=True)


def _entries(result: LintReport) -> Iterable[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for found in result.active:
        finding = found.finding
        occurrence = seen[finding.fingerprint]
        seen[finding.fingerprint] += 1
        place = place_of(found)
        yield {
            "description": one_line(f"{finding.code}: {place + ': ' if place else ''}{finding.message}"),
            "check_name": finding.code,
            "fingerprint": _unique(finding.fingerprint, occurrence),
            "severity": _SEVERITY[finding.severity],
            "location": {"path": found.place[0], "lines": {"begin": found.place[1]}},
        }


def _unique(fingerprint: str, occurrence: int) -> str:
    """Give each occurrence its own fingerprint, because GitLab shows equal fingerprints as one finding."""
    if not occurrence:
        return fingerprint
    return hashlib.sha256(f"{fingerprint}\n{occurrence}".encode()).hexdigest()[:16]
