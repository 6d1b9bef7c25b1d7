"""Findings as text: one line each (on a terminal, with evidence and help below it), and a summary line."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perftool.engine.report.across_ranks import grouped
from perftool.model.choices import SEVERITIES
from perftool.model.lint import LintFinding, LintReport
from perftool.reporters.escape import one_line
from perftool.reporters.sources import shown_sources
from perftool.units import format_ns, ranks_text

_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_PLURAL = {"error": "errors", "warning": "warnings", "info": "infos"}
_RELATED = 3


def print_lint(result: LintReport, console: Console, *, quiet: bool = False) -> None:
    """Print the findings that are not suppressed, with evidence and help on a terminal, and the summary line.

    A finding that several ranks have is printed once.
    """
    active = list(result.active)
    for group in grouped([found.finding for found in active]):
        others = sorted(rank for at in group[1:] if (rank := active[at].finding.rank) is not None)
        _print_finding(active[group[0]], console, f"; also on rank {ranks_text(others)}" if others else "")
    if not quiet:
        if any(found.finding.advice for found in result.active):
            console.print(Text(one_line(result.report.verdict.headline), style="bold"), soft_wrap=True)
        console.print(Text(summary_line(result)), soft_wrap=True)


def print_statistics(result: LintReport, console: Console) -> None:
    """Print the count, code and name of each rule that fired, the most frequent first."""
    tally = Counter((found.finding.code, found.finding.name) for found in result.active)
    for (code, name), count in sorted(tally.items(), key=lambda item: (-item[1], item[0])):
        console.print(Text(f"{count:>5}  {code}  {name}"), soft_wrap=True)
    console.print(Text(summary_line(result)), soft_wrap=True)


def summary_line(result: LintReport) -> str:
    """Return a summary such as ``Found 3 findings (1 error, 2 warnings), 12 suppressed.`` or ``All checks passed!``"""
    unseen = ((result.suppressed, "suppressed"), (result.hidden, "hidden"))
    accepted = ", ".join(f"{count} {why}" for count, why in unseen if count)
    total = len(result.active)
    if not total and not result.report.inputs:
        return "Nothing to check."
    if not total:
        return f"All checks passed! ({accepted})" if accepted else "All checks passed!"
    parts = [(result.count(severity), severity) for severity in SEVERITIES]
    listed = ", ".join(f"{n} {_PLURAL[severity] if n > 1 else severity}" for n, severity in parts if n)
    return f"Found {total} finding{'s' if total > 1 else ''} ({listed}){', ' + accepted if accepted else ''}."


def place_of(found: LintFinding) -> str:
    """Return the position of a finding in its file, ``rank0/MME:step 3``, or "" if it concerns the whole file."""
    finding = found.finding
    track = finding.location.track
    rank = "" if finding.rank is None else f"rank{finding.rank}"
    lane = "/".join(part for part in (rank, "" if track is None else str(track)) if part)
    step = "" if finding.location.step is None else f"{found.step_word} {finding.location.step}"
    return ":".join(part for part in (lane, step) if part)


def _print_finding(found: LintFinding, console: Console, also: str) -> None:
    finding = found.finding
    place = ":".join(part for part in (found.file, place_of(found)) if part)
    line = Text.assemble(
        one_line(place), ": ", (finding.code, "bold"), " [", (finding.severity, _STYLE[finding.severity]), "] ",
        one_line(finding.message), also,
    )  # fmt: skip
    console.print(line, soft_wrap=True)
    if console.is_terminal:
        _print_evidence(found, console)


def _print_evidence(found: LintFinding, console: Console) -> None:
    finding = found.finding
    if code := shown_sources(finding):
        console.print(Padding(Text(f"at {code}"), (0, 0, 0, 4)))
    for place in finding.related[:_RELATED]:
        step = "" if place.step is None else f"{found.step_word} {place.step}, "
        at = f"{step}ts {place.ts_ns} ns, {format_ns(place.dur_ns or 0)}  {one_line(place.name or '')}"
        console.print(Padding(Text(f"see {at.rstrip()}", style="dim"), (0, 0, 0, 4)))
    help_text = Text.assemble(("help: ", "bold"), " ".join(finding.fix.split()))
    console.print(Padding(help_text, (0, 0, 0, 4)))
