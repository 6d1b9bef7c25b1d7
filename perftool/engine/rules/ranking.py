"""The order of findings: what is worth changing first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perftool.model.report import Finding

_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def claimed_once(findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]]) -> list[Finding]:
    """``findings``, those of symptoms with the gain that the largest cause beside them leaves unexplained, or none.

    A finding whose code is a key of ``explained_by`` says that time is lost, not what loses it; the values are the
    codes of causes, or how these begin.
    """

    def rest(finding: Finding) -> Finding:
        causes = tuple(explained_by.get(finding.code, ()))
        if finding.gain is None or not causes:
            return finding
        gains = [other.gain for other in findings if other.code.startswith(causes) and _beside(other, finding)]
        explained = max((gain.ns_per_step for gain in gains if gain), default=0)
        if not explained:
            return finding
        left = finding.gain.ns_per_step - explained
        share = finding.gain.share_of_step * left / max(finding.gain.ns_per_step, 1)
        return replace(finding, gain=replace(finding.gain, ns_per_step=left, share_of_step=share) if left > 0 else None)

    return list(map(rest, findings))


def ranked(findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Largest gain first; those without one last, advice before what concerns the trace, the most severe first."""

    def order(finding: Finding) -> tuple[int, bool, bool, int, str, str, int]:
        gain = -1 if finding.gain is None else finding.gain.ns_per_step
        severity = _SEVERITY_ORDER[finding.severity]
        symptom = finding.code in explained_by
        return (-gain, not finding.advice, symptom, severity, finding.code, finding.subject, finding.rank or 0)

    return tuple(sorted(findings, key=order))


def _beside(cause: Finding, symptom: Finding) -> bool:
    """Whether both speak of the same rank, or one of them of all."""
    return cause.code != symptom.code and (cause.rank is None or symptom.rank is None or cause.rank == symptom.rank)
