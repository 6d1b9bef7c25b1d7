"""The same finding on several ranks, told once."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.report import Finding


def grouped(findings: Sequence[Finding]) -> tuple[tuple[int, ...], ...]:
    """Positions of findings that are the same on different ranks, in the order of their first.

    Two findings of one rank are never the same, even when their fingerprints, which leave numbers out, agree.
    """
    groups: list[list[int]] = []
    for at, finding in enumerate(findings):
        for group in groups:
            same = findings[group[0]].fingerprint == finding.fingerprint
            if same and finding.rank is not None and finding.rank not in {findings[one].rank for one in group}:
                group.append(at)
                break
        else:
            groups.append([at])
    return tuple(map(tuple, groups))
