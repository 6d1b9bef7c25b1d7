"""The report where a notebook shows the value of a cell: the verdict, where a step goes, the first findings.

A fragment without scripts and without style sheets; colours of the text and the page are the notebook's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from perftool.model.report import BREAKDOWN, Finding, Report, Step
from perftool.units import format_ns, format_ratio

_MOST_FINDINGS = 5
# Okabe and Ito's colours, which people who see few colours can tell apart.
_COLOURS = dict(
    zip(
        BREAKDOWN,
        ("#009e73", "#56b4e9", "#0072b2", "#cc79a7", "#d55e00", "#e69f00", "#f0e442", "#9a9a9a"),
        strict=True,
    )
)
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def render_notebook(report: Report) -> str:
    """``report`` as a fragment of HTML; every name from the trace is escaped."""
    parts = (_verdict(report), _notes(report), _steps(report.steps), _findings(report.findings))
    return f'<div style="line-height:1.5;max-width:60em">{"".join(parts)}</div>'


def _verdict(report: Report) -> str:
    first = next(iter(report.findings), None)
    busy = report.summary["device_busy_ratio"].value
    device = f"The device is busy {format_ratio(busy)} of the time. " if busy is not None else ""
    if first is None:
        return f"<p><b>{escape(device)}No findings.</b></p>"
    return f"<p><b>{escape(device)}First: {escape(first.name)}{escape(_worth(first))}.</b></p>"


def _worth(finding: Finding) -> str:
    gain = finding.gain
    return f", {gain.worth} per step ({format_ratio(gain.share_of_step)})" if gain else ""


def _notes(report: Report) -> str:
    """What was wrong with the inputs, and where they are from, when that is not a device."""
    notes = [f"{read.path}: {issue.message}" for read in report.inputs for issue in read.issues]
    return "".join(f'<p style="margin:0;opacity:.75">{escape(note)}</p>' for note in notes)


def _steps(steps: Sequence[Step]) -> str:
    """The mean complete step as one bar, with its parts in words."""
    complete = [step for step in steps if not step.partial]
    total = sum(step.dur_ns for step in complete)
    if not total:
        return ""
    parts = {part: sum(step.breakdown_ns[part] for step in complete) for part in BREAKDOWN}
    shown = {part: ns for part, ns in parts.items() if ns}
    count = f"{len(complete)} steps" if len(complete) > 1 else "1 step"
    mean = f"{count}, {format_ns(total / len(complete))} on average"
    return f'<p style="margin:.5em 0 0">{mean}</p>{_bar(shown, total)}{_legend(shown, total)}'


def _bar(parts: Mapping[str, int], total: int) -> str:
    pieces = "".join(
        f'<div style="width:{100 * ns / total:.3f}%;background:{_COLOURS[part]}" title="{part}"></div>'
        for part, ns in parts.items()
    )
    return f'<div style="display:flex;height:1.2em;border-radius:3px;overflow:hidden">{pieces}</div>'


def _legend(parts: Mapping[str, int], total: int) -> str:
    entries = (
        f'<span style="white-space:nowrap;margin-right:1em"><span style="color:{_COLOURS[part]}">&#9632;</span> '
        f"{part.replace('_', ' ')} {format_ratio(ns / total)}</span> "
        for part, ns in parts.items()
    )
    return f'<p style="margin:0;font-size:90%">{"".join(entries)}</p>'


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = "".join(_row(finding) for finding in findings[:_MOST_FINDINGS])
    more = len(findings) - _MOST_FINDINGS
    rest = f'<p style="margin:0;opacity:.75">and {more} more</p>' if more > 0 else ""
    table = f'<table style="margin:.5em 0;color:inherit;font:inherit"><tbody>{rows}</tbody></table>'
    if not any(finding.gain for finding in findings):
        return table + rest
    words = "Gains are predicted by replay, or upper bounds (up to); they overlap and do not add up."
    note = f'<p style="margin:0;opacity:.75">{words}</p>'
    return table + rest + note


def _row(finding: Finding) -> str:
    gain = finding.gain.worth.replace(" ", "\u00a0") if finding.gain else ""
    head = f"<b>{escape(finding.code)}</b><br>{escape(finding.severity)}"
    text = f"{escape(finding.message)}<br><b>Fix:</b> {escape(' '.join(finding.fix.split()))}"
    cells = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in (head, escape(gain), text))
    return f"<tr>{cells}</tr>"
