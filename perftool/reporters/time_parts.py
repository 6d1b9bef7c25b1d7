"""Divides the time into parts, for the bar in the terminal, the HTML page and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from perftool.model.report import Metric, Report
from perftool.model.words import kind_label


@dataclass(frozen=True)
class TimePart:
    """A part of the time. Its kind determines its colour; ``idle`` means that no device works."""

    kind: str
    label: str
    share: float
    idle: bool = False


def time_parts(report: Report) -> tuple[TimePart, ...]:
    """Divide the window into device work and the causes of idle time, largest first.

    If the trace has no device events, divide the complete steps instead. Return nothing if it is unknown whether the
    device was busy.
    """
    summary = report.summary
    busy, kernels = (summary[name].value for name in ("device_busy_ratio", "kernel_busy_ratio"))
    if summary["device_unknown_ratio"].value == 1:
        return ()
    if busy is None or kernels is None:
        return _host_parts(report)
    exposed = _known(summary["exposed_collective_ratio"])
    working = (
        TimePart("kernel", "compute", kernels - exposed),
        TimePart("communication", "collectives", exposed),
        TimePart("memcpy", "copies and fills", busy - kernels),
    )
    idle = (TimePart(row.name, kind_label(row.name), row.share, True) for row in report.idle_causes)
    return _present((*working, *idle))


def _host_parts(report: Report) -> tuple[TimePart, ...]:
    complete = [step for step in report.steps if not step.partial]
    whole = sum(step.dur_ns for step in complete)
    totals: Counter[str] = Counter()
    for step in complete:
        totals.update(step.parts_ns)
    return _present(TimePart(kind, kind_label(kind), ns / whole) for kind, ns in totals.items() if whole)


def _present(parts: Iterable[TimePart]) -> tuple[TimePart, ...]:
    return tuple(part for part in parts if part.share > 0)


def _known(metric: Metric) -> float:
    return metric.value or 0.0
