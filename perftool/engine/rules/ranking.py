"""The order of findings: what is worth changing first."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from perftool.model.report import Finding

# Times of a rank that differ by no more are about the same thing.
_ALIKE = 1.5
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
            other.gain for other in findings if other.code.startswith(causes) and _beside(other, finding, over_ranks)
        ]
        explained = max((gain.ns_per_step for gain in gains if gain), default=0)
        if not explained:
            return finding
        left = finding.gain.ns_per_step - explained
        if left < _REST * finding.gain.ns_per_step:
            return replace(finding, gain=None)
        share = finding.gain.share_of_step * left / max(finding.gain.ns_per_step, 1)
        return replace(finding, gain=replace(finding.gain, ns_per_step=left, share_of_step=share))

    return list(map(rest, findings))


def ranked(
    findings: Sequence[Finding], explained_by: Mapping[str, Sequence[str]], over_ranks: Container[str] = ()
) -> tuple[Finding, ...]:
    """Largest gain first; those without one last, advice before what concerns the trace, the most severe first.

    What a rule ``over_ranks`` says of one rank comes before what this rank shows for about the same time: that is how
    it keeps the others waiting.
    """
    leads = [found for found in findings if found.code in over_ranks and found.rank is not None and found.gain]
    most = {found.rank: found.gain.ns_per_step for found in reversed(leads) if found.gain}

    def order(finding: Finding) -> tuple[float, bool, bool, int, str, str, int]:
        gain = -1.0 if finding.gain is None else finding.gain.ns_per_step
        lead = most.get(finding.rank, 0)
        if finding.code not in over_ranks and lead < gain <= _ALIKE * lead:
            gain = lead - 0.5
        severity = _SEVERITY_ORDER[finding.severity]
        symptom = finding.code in explained_by
        return (-gain, not finding.advice, symptom, severity, finding.code, finding.subject, finding.rank or 0)

    return tuple(sorted(findings, key=order))


def _beside(cause: Finding, symptom: Finding, over_ranks: Container[str]) -> bool:
    """Whether both speak of the same rank, or one of them of all."""
    everywhere = cause.rank is None or symptom.rank is None or cause.code in over_ranks
    return cause.code != symptom.code and (everywhere or cause.rank == symptom.rank)
