"""The order of findings: what is worth changing first."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from perftool.model.report import Finding, Gain

# Times of a rank that differ by no more are about the same thing.
_ALIKE = 1.5
# A bound may be so many times what a replay predicts for the same thing.
_LOOSE = 3.0
# What a symptom keeps beside its cause is a bound less a bound; a smaller part is within their error.
_REST = 0.1
_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def claimed_once(
    findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]], over_ranks: Container[str] = ()
) -> list[Finding]:
    """``findings``, those of symptoms with the gain that the largest cause beside them leaves unexplained, or none.

    A finding whose code is a key of ``explained_by`` says that time is lost, not what loses it; the values are the
    codes of causes, or how these begin. What a rule ``over_ranks`` finds on one rank is a cause on all of them.
    """

    def rest(finding: Finding) -> Finding:
        causes = tuple(explained_by.get(finding.code, ()))
        if finding.gain is None or not causes:
            return finding
        gains = [
            (other.gain.ns_per_step, other.code)
            for other in findings
            if other.gain and other.code.startswith(causes) and _beside(other, finding, over_ranks)
        ]
        explained, code = max(gains, default=(0, ""))
        if not explained:
            return finding
        left = finding.gain.ns_per_step - explained
        if left < _REST * finding.gain.ns_per_step:
            return replace(finding, gain=None, explained_by=code)
        share = finding.gain.share_of_step * left / max(finding.gain.ns_per_step, 1)
        own = replace(finding.gain, ns_per_step=left, share_of_step=share)
        return replace(finding, gain=own, explained_by=code)

    return list(map(rest, findings))


def ranked(
    findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]], blaming: Container[str] = ()
) -> tuple[Finding, ...]:
    """Largest gain first; those without one last, advice before what concerns the trace, the most severe first.

    What a rule ``blaming`` ranks says of one, or of those in its evidence ``late_ranks``, comes before what such a rank
    shows for about the same time: that is how it keeps the others waiting.
    """
    most: dict[int | None, Gain] = {}
    for found in findings:
        if found.code in blaming and found.gain:
            late = found.evidence.get("late_ranks") or ([] if found.rank is None else [found.rank])
            for rank in late:
                most[rank] = max(most.get(rank, found.gain), found.gain, key=lambda gain: gain.ns_per_step)

    def order(finding: Finding) -> tuple[float, bool, bool, int, str, str, int]:
        gain = -1.0 if finding.gain is None else finding.gain.ns_per_step
        lead = most.get(finding.rank)
        if finding.gain and lead and finding.code not in blaming:
            alike = _LOOSE if (lead.kind, finding.gain.kind) == ("predicted", "bound") else _ALIKE
            if lead.ns_per_step < gain <= alike * lead.ns_per_step:
                gain = lead.ns_per_step - 0.5
        severity = _SEVERITY_ORDER[finding.severity]
        symptom = finding.code in explained_by
        return (-gain, not finding.advice, symptom, severity, finding.code, finding.subject, finding.rank or 0)

    return tuple(sorted(findings, key=order))


def _beside(cause: Finding, symptom: Finding, over_ranks: Container[str]) -> bool:
    """Whether both speak of the same rank, or one of them of all."""
    everywhere = cause.rank is None or symptom.rank is None or cause.code in over_ranks
    return cause.code != symptom.code and (everywhere or cause.rank == symptom.rank)
