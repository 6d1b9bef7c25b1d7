"""Describes the process groups of a run: their transfer time, and which ranks wait."""

from __future__ import annotations

from rich.text import Text

from perftool.engine.report.complete_steps import median_step_ns
from perftool.model.report import GroupRole, Report
from perftool.model.words import of_steps
from perftool.reporters.escape import one_line
from perftool.reporters.waiting import waiting_text
from perftool.units import format_ns

# Waiting below this share of a step is not noticeable.
_NOTICEABLE = 0.03
_MOST_ROLES = 4


def group_lines(report: Report, noticeable: float = _NOTICEABLE) -> list[Text]:
    """Return a header and a line for each role of process groups (such as data parallel). Return nothing if no rank
    waits for at least ``noticeable``, a share of a step."""
    step_ns = median_step_ns(report.steps)
    longest = max((wait.ns_per_step for role in report.groups for wait in role.waiting), default=0)
    if not report.groups or not step_ns or longest < noticeable * step_ns:
        return []
    heads = tuple(of_steps(head, report.run.step_word) for head in _HEADS)
    rows = [_cells(role) for role in report.groups[:_MOST_ROLES]]
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(2)]
    return [Text(f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]}", style=style)
            for row, style in zip([heads, *rows], ["bold", *[""] * len(rows)], strict=True)]  # fmt: skip


_HEADS = ("Groups", "wire per step", "waiting per step, by rank")


def _cells(role: GroupRole) -> tuple[str, str, str]:
    count = f" ({role.groups} groups)" if role.groups > 1 else ""
    return f" {one_line(role.role)} {role.size}{count}", format_ns(role.wire_ns), waiting_text(role)
