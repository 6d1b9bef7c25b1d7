"""The same finding on several ranks, told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perftool.model.report import Finding


def grouped(findings: Sequence[Finding]) -> tuple[tuple[int, ...], ...]:
    """Positions of findings that are the same on different ranks, in the order of their first.

    Two findings of one rank are never the same, even when their fingerprints, which leave numbers out, agree.
    """
    groups: list[list[int]] = []
    # Of what is the same, the n-th on a rank belongs with the n-th on every other.
    known: dict[tuple[str, int], list[int]] = {}
    seen: Counter[tuple[str, int | None]] = Counter()
    for at, finding in enumerate(findings):
        nth = seen[finding.fingerprint, finding.rank]
        seen[finding.fingerprint, finding.rank] += 1
        group = None if finding.rank is None else known.get((finding.fingerprint, nth))
        if group is None:
            group = []
            groups.append(group)
            if finding.rank is not None:
                known[finding.fingerprint, nth] = group
        group.append(at)
    return tuple(map(tuple, groups))
