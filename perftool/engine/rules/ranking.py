"""Ranks findings by the value of their fixes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from perftool.model.report import Cause, Finding
from perftool.units import format_ns

# A bound, or the gain of a fix that changes results, counts as equal to another gain within this factor.
_ALIKE = 1.5
# A prediction counts as equal to another gain within this factor, because predictions are about 10 % off.
_SAME = 1.1
# The likely gain as a share of its bound. Measured gains were 0.3 to 1.1 times their bounds, mostly 0.6 to 0.9.
_LIKELY = 0.8
# A bound up to this many times a prediction may describe the same time.
LOOSE = 3.0
# A smaller share of a symptom's gain, whether explained or unexplained, is within the error of the two bounds.
_REST = 0.1
_ENDLESS = 2.0**63
_NONE: Mapping[str, Sequence[str]] = MappingProxyType({})
_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def claimed_once(
    findings: Sequence[Finding],
    explained_by: Mapping[str, Sequence[str]],
    over_ranks: Container[str] = (),
    explains: Mapping[str, Sequence[str]] = _NONE,
    blaming: Container[str] = (),
) -> list[Finding]:
    """Reduce the gain of each symptom in ``findings`` to what the largest of its causes leaves unexplained.

    A finding whose code is a key of ``explained_by`` is a symptom: it shows that time is lost, but not why. The values
    are the codes, or code prefixes, of its causes. A finding that ``explains`` the main cause in the symptom's evidence
    takes precedence. For a symptom about idle time, a finding explains at most the idle time that both attribute to the
    same causes. A finding of a rule in ``over_ranks`` can explain symptoms on any rank. If the cause was found by a
    rule in ``blaming``, which names ranks that others wait for, the symptom's message states how much of its time is
    spent waiting for them.
    """
    numbered = [(number, found) for number, found in enumerate(findings) if found.gain]
    everywhere = [one for one in numbered if one[1].rank is None or one[1].code in over_ranks]
    on_rank: dict[int | None, list[tuple[int, Finding]]] = {}
    for number, found in numbered:
        if found.rank is not None and found.code not in over_ranks:
            on_rank.setdefault(found.rank, []).append((number, found))

    def rest(finding: Finding) -> Finding:
        causes = tuple(explained_by.get(finding.code, ()))
        if finding.gain is None or not causes:
            return finding
        main = str(finding.evidence.get("main_cause"))
        gains = [
            (main in explains.get(other.code, ()), _shared_ns(other, finding, explains), other.code, number)
            for number, other in (numbered if finding.rank is None else [*everywhere, *on_rank.get(finding.rank, ())])
            if other.code.startswith(causes) and other.code != finding.code
        ]
        _, explained, code, number = max(gains, default=(False, 0, "", -1))
        if explained < _REST * finding.gain.ns_per_step:
            return finding
        gain, left = finding.gain, finding.gain.ns_per_step - explained
        if code in blaming and finding.rank not in findings[number].late_ranks:
            waited = format_ns(min(explained, gain.ns_per_step))
            waiting = f"of this, {waited} per step is spent waiting for {findings[number].subject} ({code})"
            finding = replace(finding, message=f"{finding.message}; {waiting}")
        if left < _REST * gain.ns_per_step:
            return replace(finding, gain=None, explained_by=code)
        share = gain.share_of_step * left / max(gain.ns_per_step, 1)
        own = replace(gain, ns_per_step=left, share_of_step=share)
        return replace(finding, gain=own, explained_by=code)

    return list(map(rest, findings))


def ranked(
    findings: Sequence[Finding],
    explained_by: Mapping[str, Sequence[str]],
    blaming: Container[str] = (),
    explains: Mapping[str, Sequence[str]] = _NONE,
    altering: Container[str] = (),
    step_ns: int = 0,
) -> tuple[Finding, ...]:
    """Rank ``findings`` by gain or, without a gain, by the waiting time of requests (as a share of ``step_ns``).
    Findings with neither come last: those with advice first, then by severity.

    Findings of the rules in ``blaming``, which name stragglers, precede all others, because other ranks cannot be
    faster than the one they wait for. A gain that was predicted or tried precedes a bound that ``explains`` the same
    time, because a loose bound does not prove a larger gain. A symptom follows a cause of about the same size. So does
    a finding of a rule in ``altering``, whose fix changes the program's results. Findings with the same fix are
    adjacent, and rank by the total gain of that fix.
    """
    foreseen: dict[tuple[int | None, str], float] = {}
    for found in findings:
        if found.gain and found.gain.kind != "bound":
            for cause in explains.get(found.code, ()):
                key = found.rank, cause
                foreseen[key] = max(foreseen.get(key, 0), found.gain.ns_per_step)

    def order(finding: Finding) -> tuple[bool, float, bool, bool, int, str, str, int, str, int]:
        gain = weight_ns(finding, step_ns)
        if finding.whole_gain and finding.whole_gain.kind == "bound":
            same = max((foreseen.get((finding.rank, cause), 0) for cause in explains.get(finding.code, ())), default=0)
            if same < gain <= LOOSE * same:
                gain = same - 0.5
            elif gain > 0:
                gain *= _LIKELY
        severity = _SEVERITY_ORDER[finding.severity]
        others = not (finding.code in blaming and finding.gain and finding.gain.ns_per_step > 0)
        symptom = finding.code in explained_by
        if symptom:
            gain /= _SAME
        if finding.code in altering:
            gain /= _ALIKE
        # All findings with the same fix have the same weight.
        fix, own = (finding.short_fix, finding.gain.ns_per_step) if finding.fix_gain and finding.gain else ("", 0)
        last = (finding.code, fix, -own, finding.subject, finding.rank or 0)
        return (others, -gain, not finding.advice, symptom, severity, *last)

    return tuple(sorted(findings, key=order))


def weight_ns(finding: Finding, step_ns: int) -> float:
    """Return the value of ``finding`` in ns per step: the gain of its fix, or else the part of ``step_ns`` during which
    requests wait (``waited_ratio`` in the evidence). The value is negative if neither is known.

    A fix that only spreads a pause over many steps shortens the wait of requests, but not the mean step.
    """
    if finding.whole_gain is not None:
        return finding.whole_gain.ns_per_step
    waited = finding.evidence.get("waited_ratio")
    known = isinstance(waited, (int, float)) and 0 < waited <= 1
    return float(waited) * max(step_ns, 1) if known and waited else -1.0


def led_by_largest(
    findings: Sequence[Finding], causes: Sequence[Cause], kept: Container[str] = ()
) -> tuple[Finding, ...]:
    """Move the finding that explains the largest of ``causes`` ahead of the first advice with a gain.

    The order is kept in three cases: the gain of that first advice is clearly larger; that advice explains a cause of
    about the same size; or its rule is in ``kept`` (rules about stragglers, and rules that relieve the host).
    """
    first = next((found for found in findings if found.advice and found.gain), None)
    if first is None or not causes or first.code in kept:
        return tuple(findings)
    if any(first.code in cause.codes and _SAME * cause.share >= causes[0].share for cause in causes):
        return tuple(findings)
    lead = next((found for found in findings if found.advice and found.gain and found.code in causes[0].codes), None)
    if lead is None or not lead.gain or not first.gain:
        return tuple(findings)
    alike = _ALIKE if first.gain.kind == "bound" else _SAME
    if weight_ns(first, 0) > alike * weight_ns(lead, 0):
        return tuple(findings)
    others = [found for found in findings if found is not lead]
    at = others.index(first)
    return (*others[:at], lead, *others[at:])


def _shared_ns(cause: Finding, symptom: Finding, explains: Mapping[str, Sequence[str]]) -> int:
    """Return how much of the gain of ``cause`` may overlap the gain of ``symptom``, in ns."""
    gain = cause.gain.ns_per_step if cause.gain else 0
    whole = _idle_causes(symptom)
    if not whole or symptom.gain is None:
        return gain
    own = _idle_causes(cause)
    shared = sum(
        min(ns, own.get(name, 0)) if own else ns * (name in explains.get(cause.code, ())) for name, ns in whole.items()
    )
    return round(min(gain, symptom.gain.ns_per_step * min(1, shared / max(1, sum(whole.values())))))


def _idle_causes(finding: Finding) -> dict[str, float]:
    """Return the idle time of ``finding`` by cause. The result is empty if the evidence does not contain it in a valid
    form.
    """
    causes = finding.evidence.get("idle_causes")
    parts = [part for part in causes if isinstance(part, Mapping)] if isinstance(causes, (list, tuple)) else []
    return {
        str(part.get("cause")): float(part["ns"])
        for part in parts
        if isinstance(part.get("ns"), (int, float)) and 0 < part["ns"] < _ENDLESS
    }
