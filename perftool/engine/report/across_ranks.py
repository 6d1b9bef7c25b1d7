"""Groups findings that occur on several ranks, and chooses the ranks to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perftool.model.report import Finding, RankSummary


def grouped(findings: Sequence[Finding]) -> tuple[tuple[int, ...], ...]:
    """Group the findings that occur on several ranks. Return groups of indices, ordered by their first index.

    Two findings on one rank are never grouped, even if their fingerprints, which omit numbers, are equal.
    """
    groups: list[list[int]] = []
    # Among findings with the same fingerprint, the n-th on a rank matches the n-th on every other rank.
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


def ranks_to_show(ranks: Sequence[RankSummary], findings: Sequence[Finding], most: int) -> list[RankSummary]:
    """Return at most ``most`` of ``ranks``, in their original order.

    Unreadable ranks take precedence, followed by ranks with findings, and then by those whose compute, waiting, exposed
    collectives and steps differ most from the median rank.
    """
    if len(ranks) <= most:
        return list(ranks)
    late = {rank for found in findings for rank in found.late_ranks}
    counts = Counter(found.code for found in findings if found.rank is not None)
    # A rule that has findings on many ranks does not single out any of them.
    late |= {found.rank for found in findings if found.rank is not None and counts[found.code] <= most // 2}
    columns = [[_times(row)[at] for row in ranks if row.status == "ok"] for at in range(4)]
    usual = [sorted(column)[len(column) // 2] if column else 0.0 for column in columns]

    def order(row: RankSummary) -> tuple[bool, bool, float, int]:
        distance = sum(abs(own - middle) for own, middle in zip(_times(row), usual, strict=True))
        return row.status == "ok", row.rank not in late, -distance, row.rank

    return sorted(sorted(ranks, key=order)[:most], key=lambda row: row.rank)


def _times(row: RankSummary) -> tuple[float, float, float, float]:
    """Return the compute, waiting, exposed collectives and steps of a rank, as shares of its window."""
    whole = row.window_ns or 1
    shares = (row.compute_ns, row.waited_ns, row.exposed_ns, (row.step_ns or 0) * row.steps)
    compute, waited, exposed, steps = ((ns or 0) / whole for ns in shares)
    return compute, waited, exposed, steps
