"""The one-screen report as HTML for a notebook cell, with the colours of the HTML page.

The fragment contains no scripts or style sheets, and inherits the notebook's text and background colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from perftool.model.report import Finding, Report
from perftool.reporters.colours import colour
from perftool.reporters.escape import one_line
from perftool.reporters.naming import facts, run_title
from perftool.reporters.sources import shown_sources
from perftool.reporters.time_parts import TimePart, time_parts
from perftool.reporters.verdict import gain_text, origins
from perftool.units import format_ratio

_MOST_FINDINGS = 5
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_SOFT = 'style="margin:0;opacity:.75"'


def render_notebook(report: Report) -> str:
    """Render ``report`` as an HTML fragment, with all names from the trace escaped."""
    headline = f'<p style="margin:.2em 0;font-size:115%"><b>{escape(one_line(report.verdict.headline))}</b></p>'
    parts = (_head(report), _notes(report), headline, _bar(time_parts(report)), _findings(report.advice))
    return f'<div style="line-height:1.5;max-width:60em">{"".join(parts)}</div>'


def _head(report: Report) -> str:
    run = escape(" · ".join((one_line(run_title(report)), *facts(report))))
    return f"<p {_SOFT}>{run}</p>"


def _notes(report: Report) -> str:
    """Label inputs that were not recorded on a device, and list problems with the inputs."""
    strange = [f"Not a measurement. {text}." for text in origins(report)]
    issues = [f"{read.path}: {issue.message}" for read in report.inputs for issue in read.issues
              if issue.kind not in ("handMade", "simulated")]  # fmt: skip
    return "".join(f"<p {_SOFT}>{escape(one_line(note))}</p>" for note in (*strange, *issues))


def _bar(parts: Sequence[TimePart]) -> str:
    """Show the time breakdown as a bar with a legend; idle parts are pale."""
    if not parts:
        return ""
    pieces = "".join(
        f'<div style="width:{100 * part.share / sum(one.share for one in parts):.3f}%;background:{colour(part.kind)}'
        f'{";opacity:.55" if part.idle else ""}" title="{escape(_words(part))}"></div>'
        for part in parts
    )
    legend = "".join(
        f'<span style="white-space:nowrap;margin-right:1em"><span style="color:{colour(part.kind)}">&#9632;</span> '
        f"{escape(_words(part))}</span> "
        for part in parts
    )
    bar = f'<div style="display:flex;height:1.2em;border-radius:3px;overflow:hidden">{pieces}</div>'
    return f'{bar}<p style="margin:0;font-size:90%">{legend}</p>'


def _words(part: TimePart) -> str:
    return f"{'idle: ' if part.idle else ''}{part.label} {format_ratio(part.share)}"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = "".join(_row(finding) for finding in findings[:_MOST_FINDINGS])
    more = len(findings) - _MOST_FINDINGS
    rest = f"<p {_SOFT}>and {more} more</p>" if more > 0 else ""
    table = f'<table style="margin:.5em 0;color:inherit;font:inherit"><tbody>{rows}</tbody></table>'
    if not any(finding.gain for finding in findings):
        return table + rest
    return f"{table}{rest}<p {_SOFT}>≤ marks an upper bound from evidence. Gains overlap, so do not add them up.</p>"


def _row(finding: Finding) -> str:
    gain = gain_text(finding).replace(" ", "\u00a0")
    where = escape(shown_sources(finding))
    head = f"<b>{escape(finding.code)}</b><br>{escape(finding.severity)}"
    place = f"<br>{where}" if where else ""
    text = f"{escape(one_line(finding.message))}<br><b>Fix:</b> {escape(one_line(finding.short_fix))}{place}"
    cells = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in (head, escape(gain), text))
    return f"<tr>{cells}</tr>"
