"""Builds the annotations to add to a rank's trace: findings, the critical path, idle time and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from perftool.engine.drawing.path import path_marks
from perftool.model.annotations import Annotations, Counter, Flow, Lane, Mark, Sample
from perftool.model.report import Finding, Location, Report
from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

_T = TypeVar("_T")
_FIRST_PID, _MOST_DIGITS = 9001, 15
# More lanes per rule, or more memory counters, would be unreadable.
_MOST_LANES = 64
_NUMBERS = "SELECT pid AS number FROM raw UNION SELECT tid FROM raw"
_IDLE = "SELECT cause, ts, dur FROM _idle_stretches WHERE rank = $rank ORDER BY ts"
_BUSY = "SELECT ts, busy FROM _busy_changes WHERE rank = $rank ORDER BY ts"
_QUEUE = "SELECT ts, depth FROM queue_depth WHERE rank = $rank ORDER BY ts"
_DEVICES = "SELECT DISTINCT device_type, device FROM memory WHERE rank = $rank ORDER BY ALL"
_MEMORY = """
SELECT ts, allocated, reserved FROM memory
WHERE rank = $rank AND device_type = $device_type AND device = $device ORDER BY ts
"""


def annotate(store: TraceStore, report: Report, rank: int) -> Annotations:
    """Return the annotations for ``rank``: its findings and those of the whole run, its critical path, its idle time by
    cause, and counters.

    Idle time and counters are read lazily from ``store`` while they are written.
    """
    store.build(["windows", "_idle_stretches", "_busy_changes", "queue_depth", "memory"])
    window = _window(store, rank)
    findings = [finding for finding in report.findings if finding.rank in (None, rank)]
    codes = dict.fromkeys(finding.code for finding in findings)
    lanes = [lane for code in codes for lane in _lanes(code, findings, window)]
    view, select = attention(findings, window)
    if store.has_rows("gap_causes"):
        lanes.append(Lane("idle time by cause", _Again(partial(_idle, store, rank))))
    path, way = path_marks(store, rank)
    flows = tuple(Flow(len(lanes) + a, ts, len(lanes) + b, until) for a, ts, b, until in way)
    lanes += path
    counters = tuple(_counters(store, report, rank))
    pid = _free_pid(store, len(lanes))
    return Annotations(rank, pid, len(findings), view, select, tuple(lanes), counters, flows)


def _window(store: TraceStore, rank: int) -> Location:
    """Return the window of the rank, or the whole recording if it has none."""
    for table in ("windows", "slices"):
        store.build([table])
        found = store.select(
            f'SELECT min(ts) AS ts, (max("end") - min(ts))::BIGINT AS dur FROM {table} WHERE rank = $rank',
            {"rank": rank},
        )[0]
        if found["ts"] is not None:
            return Location(ts_ns=found["ts"], dur_ns=found["dur"])
    return Location(ts_ns=0, dur_ns=0)


def attention(findings: Sequence[Finding], window: Location) -> tuple[Location, Location | None]:
    """Return the initial view, and the slice to select in it (None if no slice is known)."""
    for finding in findings[:1]:
        if _has_stretch(finding.location):
            return _around(finding.location, window), finding.location
        return window, next(filter(_has_stretch, finding.related), None)
    return window, None


def _around(place: Location, window: Location) -> Location:
    """Return ``place`` extended by its own length on both sides, within the window."""
    ts, dur, first, length = (int(ns or 0) for ns in (place.ts_ns, place.dur_ns, window.ts_ns, window.dur_ns))
    start = min(ts, max(ts - dur, first))
    end = max(ts + dur, min(ts + 2 * dur, first + length))
    return Location(ts_ns=start, dur_ns=end - start)


def _has_stretch(place: Location) -> bool:
    return place.ts_ns is not None and place.dur_ns is not None


def _free_pid(store: TraceStore, threads: int) -> int:
    """Return an unused id: no process or thread of the trace has this id or one of the ``threads`` ids after it."""
    texts = (row["number"] or "" for row in store.select(_NUMBERS))
    pid = _FIRST_PID
    for used in sorted(
        int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    ):
        if used > pid + threads:
            break
        pid = max(pid, used + 1)
    return pid


def _lanes(code: str, findings: Sequence[Finding], window: Location) -> Iterator[Lane]:
    """Yield the findings of one rule with the slices they refer to. Overlapping slices get separate lanes."""
    chosen = [finding for finding in findings if finding.code == code]
    marks = [mark for finding in chosen for mark in _marks(finding, window)]
    lanes, left = nested_lanes(marks)
    for number, lane in enumerate(lanes, 1):
        rest = f"; {left:,} more are not drawn" if left and number == len(lanes) else ""
        yield Lane(f"{code} {chosen[0].name}" + (f" ({number}{rest})" if number > 1 else ""), lane)


def nested_lanes(marks: Iterable[Mark]) -> tuple[list[list[Mark]], int]:
    """Assign ``marks`` greedily to lanes, so that no two marks in a lane overlap partially. Return the lanes, and the
    number of marks that do not fit into ``_MOST_LANES``."""
    lanes: list[list[Mark]] = []
    left = 0
    # By lane, the ends of the marks that contain the current time, innermost last.
    still_open: list[list[int]] = []
    for mark in sorted(marks, key=lambda mark: (mark.ts_ns, -mark.dur_ns)):
        end = mark.ts_ns + mark.dur_ns
        at = next((at for at, ends in enumerate(still_open) if _fits(mark.ts_ns, end, ends)), len(lanes))
        if at == _MOST_LANES:
            left += 1
            continue
        if at == len(lanes):
            lanes.append([])
            still_open.append([])
        lanes[at].append(mark)
        still_open[at].append(end)
    return lanes, left


def _fits(ts: int, end: int, open_ends: list[int]) -> bool:
    """Whether the stretch from ``ts`` to ``end`` fits into the innermost open mark. Ended marks are removed."""
    while open_ends and open_ends[-1] <= ts:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _marks(finding: Finding, window: Location) -> Iterator[Mark]:
    # A finding without a stretch concerns the whole window.
    drawn = finding.location if _has_stretch(finding.location) else window
    yield _mark(f"{finding.code}: {finding.message}", drawn, _args(finding))
    for number, place in enumerate(finding.related, 1):
        if place.ts_ns is not None and (place.ts_ns, place.dur_ns) != (drawn.ts_ns, drawn.dur_ns):
            yield _mark(f"{number}: {place.name or finding.subject}", place, {"step": place.step})


def _mark(name: str, place: Location, args: dict[str, Any]) -> Mark:
    ts, dur = place.ts_ns or 0, max(place.dur_ns or 0, 0)
    return Mark(name, ts, dur, {**args, "ts": ts, "dur": dur})


def _args(finding: Finding) -> dict[str, Any]:
    gain = finding.gain
    return {
        "message": finding.message,
        "why": " ".join(finding.why.split()),
        "source": ", ".join(map(str, finding.location.sources)) or None,
        "fix": " ".join(finding.fix.split()),
        "gain": gain and f"{gain.worth} per step ({format_ratio(gain.share_of_step)})",
        "severity": finding.severity,
        "confidence": finding.confidence,
        "subject": finding.subject,
        "evidence": dict(finding.evidence),
        "explain": f"habana_perf_tool rule {finding.code}",
    }


def _idle(store: TraceStore, rank: int) -> Iterator[Mark]:
    for cause, ts, dur in store.iterate(_IDLE, {"rank": rank}):
        yield Mark(cause, ts, dur, {})


def _counters(store: TraceStore, report: Report, rank: int) -> Iterator[Counter]:
    if store.has_rows("device_busy"):
        yield Counter("device", _samples(store, _BUSY, ("busy",), {"rank": rank}))
    if store.has_rows("launches"):
        yield Counter("queue", _samples(store, _QUEUE, ("depth",), {"rank": rank}))
    devices = store.select(_DEVICES, {"rank": rank})
    shown = devices[:_MOST_LANES]
    for row in shown:
        name = "memory host" if row["device_type"] == 0 else f"memory {report.device.type or 'device'}:{row['device']}"
        rest = len(devices) - len(shown) if row is shown[-1] else 0
        yield Counter(
            name + (f" ({rest:,} more devices are not drawn)" if rest else ""),
            _samples(store, _MEMORY, ("allocated bytes", "reserved bytes"), {"rank": rank, **row}),
        )


def _samples(store: TraceStore, sql: str, names: Sequence[str], params: dict[str, Any]) -> Iterable[Sample]:
    return _Again(partial(_read_samples, store, sql, names, params))


def _read_samples(store: TraceStore, sql: str, names: Sequence[str], params: dict[str, Any]) -> Iterator[Sample]:
    for ts, *values in store.iterate(sql, params):
        known = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if known and ts is not None:
            yield Sample(ts, known)


class _Again(Generic[_T]):
    """An iterable that calls ``read`` for each iteration. The first iteration searches for secrets to redact, and the
    second writes the output."""

    def __init__(self, read: Callable[[], Iterator[_T]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[_T]:
        return self._read()
