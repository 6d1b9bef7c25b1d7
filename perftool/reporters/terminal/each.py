"""Describes each of many unrelated runs in one line."""

from __future__ import annotations

from rich.text import Text

from perftool.model.report import Report
from perftool.reporters.escape import one_line
from perftool.reporters.naming import device_name, step_time
from perftool.reporters.sources import shown_sources
from perftool.reporters.verdict import amount_text
from perftool.units import format_ratio


def line_of(trace: str, report: Report, width: int) -> Text:
    """Format the name, device, step time, busy share and first finding of a run. The name takes ``width`` cells."""
    step, busy = report.summary["step_time_ms"], report.summary["device_busy_ratio"].value
    cells = (
        f"{device_name(report.device) or 'no device':<24}",
        f"{step_time(report)[1] if step.value is not None else 'no step':>8}",
        f"{format_ratio(busy) + ' busy' if busy is not None else '':>12}",
    )
    first = next(iter(report.advice), None)
    parts = ["nothing to change"]
    if first:
        parts = [f"{first.code} {first.name}", amount_text(first.whole_gain), shown_sources(first, 1)]
    advice = one_line("  ".join(filter(None, parts)))
    return Text(f"{one_line(trace):<{width}}  {'  '.join(map(one_line, cells))}  {advice}")


def line_of_failure(trace: str, error: Exception, width: int) -> Text:
    """Say why ``trace`` has no result."""
    return Text(f"{one_line(trace):<{width}}  {one_line(str(error))}", style="red")
