"""The order of findings: what is worth changing first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perftool.model.report import Finding

_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def ranked(findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Largest gain first; those without one last, the most severe first.

    A finding whose code is a key of ``explained_by`` says that time is lost, not what loses it. It counts for as much
    as the largest cause beside it leaves unexplained; the values are the codes of causes, or how these begin.
    """

    def weight(finding: Finding) -> int:
        if finding.gain is None:
            return -1
        causes = tuple(explained_by.get(finding.code, ()))
        gains = (other.gain for other in findings if other.code.startswith(causes) and _beside(other, finding))
        explained = max((gain.ns_per_step for gain in gains if gain), default=0) if causes else 0
        return max(0, finding.gain.ns_per_step - explained)

    def order(finding: Finding) -> tuple[int, bool, int, str, str, int]:
        severity = _SEVERITY_ORDER[finding.severity]
        symptom = finding.code in explained_by
        return (-weight(finding), symptom, severity, finding.code, finding.subject, finding.rank or 0)

    return tuple(sorted(findings, key=order))


def _beside(cause: Finding, symptom: Finding) -> bool:
    """Whether both speak of the same rank, or one of them of all."""
    return cause.code != symptom.code and (cause.rank is None or symptom.rank is None or cause.rank == symptom.rank)
