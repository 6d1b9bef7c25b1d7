"""Finds pairs of findings whose gains count the same time, so that a reader does not add them up. Also adds up the
gains of findings with the same fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from perftool.model.report import Finding, Gain, Overlap, sum_of

Span = tuple[int, int]
# A rule that does not know its exact intervals returns this column: longer intervals, as a list of {ts, dur}.
WITHIN = "within"
# Below this share of the shorter list of intervals, only the edges of two findings overlap.
_MOSTLY = 0.5
# The sum of two gains may exceed the step by up to this factor without an overlap, because bounds are not exact.
_EXCESS = 1.05
# The maximum number of findings to compare with each other. More do not fit in a short answer.
_MOST_COMPARED = 12


@dataclass(frozen=True)
class HostTime:
    """Spans of the host time that a finding counts, not necessarily all of them. If ``inside`` is set, the finding's
    time is only known to be somewhere in ``spans``."""

    spans: tuple[Span, ...]
    inside: bool = False


def host_time(row: Mapping[str, Any]) -> HostTime:
    """Return the host time of a rule's ``row``: from its column ``within`` or, if it has none, from its place and its
    ``related`` places.

    The column ``host_time`` is not used: for work of the backward pass, it contains the forward ops, whose lines the
    report shows.
    """
    if row.get(WITHIN):
        return HostTime(_united(row[WITHIN]), inside=True)
    return HostTime(_united([*(row.get("related") or ()), row]))


def with_fix_gains(findings: Sequence[Finding], times: Mapping[int, HostTime], step_ns: int) -> list[Finding]:
    """Set ``fix_gain`` of ``findings``: the total gain of the findings with the same rule, rank and fix, if their times
    are disjoint.

    ``times`` maps the ``id()`` of a finding to its host time. If the sum exceeds a step of ``step_ns``, or if the time
    of a finding is unknown, the gains may count the same time, so they are not added up.
    """
    of_fix: dict[tuple[str, str, int | None], list[Finding]] = {}
    for found in findings:
        if found.gain and found.gain.ns_per_step > 0 and found.advice and found.short_fix:
            of_fix.setdefault((found.code, found.short_fix, found.rank), []).append(found)
    whole: dict[int, Gain] = {}
    for members in of_fix.values():
        known = [time for found in members if (time := times.get(id(found))) and time.spans and not time.inside]
        gain = sum_of(members)
        if 1 < len(members) == len(known) and gain and gain.ns_per_step <= step_ns and _are_disjoint(known):
            whole.update((id(found), gain) for found in members)
    return [replace(found, fix_gain=whole[id(found)]) if id(found) in whole else found for found in findings]


def _are_disjoint(times: Sequence[HostTime]) -> bool:
    """Whether no two of ``times`` share any time."""
    spans = sorted(span for time in times for span in time.spans)
    return all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def with_overlaps(findings: Sequence[Finding], times: Mapping[int, HostTime], step_ns: int) -> tuple[Finding, ...]:
    """Add to each of ``findings`` the larger findings on its rank that are known to count the same time, or that may do
    so.

    ``times`` maps the ``id()`` of a finding to its host time. Two gains overlap if their sum exceeds a step of
    ``step_ns``, or if most of their intervals are the same. If the time of one of them is only known to be somewhere in
    its intervals, the overlap is uncertain.
    """
    done: list[Finding] = []
    compared: list[Finding] = []
    for found in findings:
        overlaps = tuple(
            overlap
            for other in compared
            if (overlap := _overlap(other, found, times, step_ns)) and other.code != found.code
        )
        if found.gain and found.advice and len(compared) < _MOST_COMPARED:
            compared.append(found)
            unique = {one.code: one for one in sorted(overlaps, key=lambda one: one.certain)}
            done.append(replace(found, overlaps=tuple(unique.values())))
        else:
            done.append(found)
    return tuple(done)


def _overlap(first: Finding, second: Finding, times: Mapping[int, HostTime], step_ns: int) -> Overlap | None:
    # The gain of a symptom leaves out the time of its cause.
    if second.explained_by == first.code or first.explained_by == second.code:
        return None
    if not first.gain or not second.gain or not _same_rank(first, second):
        return None
    gains = [one.whole_gain.ns_per_step for one in (first, second) if one.whole_gain]
    if sum(gains) > _EXCESS * step_ns:
        return Overlap(first.code, certain=True)
    one, other = times.get(id(first)), times.get(id(second))
    if one is None or other is None or (one.inside and other.inside):
        return None
    certain = not (one.inside or other.inside)
    # If the time of one finding is only known to be somewhere in its intervals, compare with the other finding's time.
    whole = min(_length(time.spans) for time in (one, other) if not time.inside)
    shared = _shared(one.spans, other.spans)
    if whole <= 0 or shared < _MOSTLY * whole:
        return None
    return Overlap(first.code, certain)


def _same_rank(first: Finding, second: Finding) -> bool:
    return first.rank == second.rank or first.rank is None or second.rank is None


def _united(places: Iterable[Mapping[str, Any]]) -> tuple[Span, ...]:
    """Merge the intervals of ``places``, in order of time."""
    known = [(place.get("ts"), place.get("dur")) for place in places]
    spans = sorted((int(ts), int(ts) + int(dur)) for ts, dur in known if ts is not None and dur)
    merged: list[Span] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)


def _shared(first: Sequence[Span], second: Sequence[Span]) -> int:
    """Return the total time covered by both lists. The intervals of each list are disjoint and in time order."""
    at, shared = 0, 0
    for begin, end in first:
        while at < len(second) and second[at][1] <= begin:
            at += 1
        other = at
        while other < len(second) and second[other][0] < end:
            shared += min(end, second[other][1]) - max(begin, second[other][0])
            other += 1
    return shared
