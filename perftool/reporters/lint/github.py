"""Findings as annotations for GitHub Actions, and as the Markdown summary of a job."""

from __future__ import annotations

from perftool.model.lint import LintFinding, LintReport
from perftool.reporters.escape import github_message, github_property, json_text, markdown_cell, one_line
from perftool.reporters.lint.text import place_of, summary_line
from perftool.units import format_ns

_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}


def render_github(result: LintReport) -> bytes:
    """Render each finding that is not suppressed as a workflow command, the worst first: GitHub shows only a few."""
    return "".join(f"{_command(found)}\n" for found in result.active).encode("utf-8", "replace")


def render_step_summary(result: LintReport) -> bytes:
    """Render the findings that are not suppressed as a Markdown table, for the file in GITHUB_STEP_SUMMARY."""
    lines = ["### habana_perf_tool", "", summary_line(result), ""]
    if any(found.finding.advice for found in result.active):
        lines += [f"**{markdown_cell(result.report.verdict.headline)}**", ""]
    if result.active:
        lines += [
            f"| severity | rule | where | finding | gain per {result.report.run.step_word}, at most |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(found) for found in result.active]
        lines.append("")
    if result.stale:
        codes = ", ".join(sorted({entry.code for entry in result.stale}))
        lines += [f"In the baseline, but no longer found: {len(result.stale)} ({codes}).", ""]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _command(found: LintFinding) -> str:
    finding = found.finding
    properties = {
        "title": f"habana_perf_tool ({finding.code})",
        "file": found.place[0],
        "line": str(found.place[1]), "col": "1", "endLine": str(found.place[1]), "endColumn": "2",
    }  # fmt: skip
    listed = ",".join(f"{key}={github_property(one_line(value))}" for key, value in properties.items())
    place = place_of(found)
    help_text = one_line(" ".join(finding.fix.split()))
    text = f"{place + ': ' if place else ''}{finding.message}"
    return f"::{_LEVEL[finding.severity]} {listed}::{github_message(one_line(text))}%0A{github_message(help_text)}"


def _row(found: LintFinding) -> str:
    finding = found.finding
    where = ":".join(part for part in (found.file, place_of(found)) if part)
    gain = format_ns(finding.gain.ns_per_step) if finding.gain else ""
    cells = (finding.severity, f"{finding.code} {finding.name}", where, json_text(finding.message), gain)
    return f"| {' | '.join(markdown_cell(cell) for cell in cells)} |"
