"""``lint``: fails a CI job when a run has findings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perftool.commands.lint_output import Sink, emit, parse_sinks
from perftool.commands.options import NO_VALUE, CliSettings, Paths
from perftool.commands.output import exit_code, write_document, written_note
from perftool.commands.session import Session, open_run, project_root
from perftool.errors import NoInputError
from perftool.model.choices import LintFormat
from perftool.output_file import write_errors_named
from perftool.units import format_ratio

if TYPE_CHECKING:
    from perftool.engine.gate.lint import LintPlan
    from perftool.model.lint import LintReport
    from perftool.readers.discover import Inputs

_GATE = "Gate"
_OUTPUT = "Output"
WriteBaseline = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Accept the current findings: write them to FILE.", rich_help_panel=_GATE),
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget", metavar="LIMIT", rich_help_panel=_GATE,
        help="Limit a metric: 'step_time_ms<=120', or 'name: SELECT ... <= 10'; repeatable.",
    ),
]  # fmt: skip
Also = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FORMAT:FILE",
        help="Also write this format, such as sarif:out.sarif; repeatable.",
        rich_help_panel=_OUTPUT,
    ),
]
Statistics = Annotated[
    bool,
    typer.Option(
        "--statistics",
        metavar=NO_VALUE,
        help="Print how often each rule fired, instead of the findings.",
        rich_help_panel=_OUTPUT,
    ),
]
AllowEmpty = Annotated[
    bool,
    typer.Option(
        "--allow-empty",
        metavar=NO_VALUE,
        help="Succeed when there is nothing to check.",
        rich_help_panel="File selection",
    ),
]
StdinName = Annotated[
    str | None,
    typer.Option(
        "--stdin-filename",
        metavar="NAME",
        help="File name to report for '-' (stdin).",
        rich_help_panel="File selection",
    ),
]


@dataclass(frozen=True)
class _Call:
    """The options that only ``lint`` accepts."""

    write_baseline: str | None
    budgets: Sequence[str]
    also: Sequence[str]
    statistics: bool
    allow_empty: bool
    stdin_name: str | None


def lint(
    cli: CliSettings,
    paths: Paths = None,
    write_baseline: WriteBaseline = None,
    budget: BudgetOption = None,
    also: Also = None,
    statistics: Statistics = False,
    allow_empty: AllowEmpty = False,
    stdin_filename: StdinName = None,
) -> None:
    """Fail when a run has findings: a gate for CI

    Exit code 0: no finding at or above --fail-on; 1: at least one; 2: lint could not run.

    Examples:

      habana_perf_tool lint traces/ --baseline accepted.json

      habana_perf_tool lint run.pt.trace.json.gz --also sarif:a.sarif
    """
    call = _Call(write_baseline, budget or [], also or [], statistics, allow_empty, stdin_filename)
    session = Session(cli, paths or [], gate=True)
    sinks = parse_sinks(session.settings, call.also, statistics)
    # Only JSON shows the numbers of a report in which nothing is found.
    plan = _plan(session, call, whole=any(sink.format is LintFormat.json for sink in sinks))
    inputs = _inputs(session, paths or [], [*(sink.target for sink in sinks), write_baseline], allow_empty)
    result = _accepted(linted(session, inputs, plan), plan, write_baseline)
    with exit_code(1 if result.fails else 0):
        _finish(result, session, sinks, call)
        session.note(_coverage_notes(result, plan))


def linted(session: Session, inputs: Inputs, plan: LintPlan) -> LintReport:
    """Lint ``inputs``, which may be empty, as planned."""
    from perftool.engine.gate.lint import lint_nothing, lint_run

    if not inputs.files:
        return lint_nothing(plan)
    with open_run(session, inputs) as run:
        return lint_run(run, plan)


def plan_of(
    session: Session, root: Path, budgets: Sequence[str] = (), place: str = "--budget", **more: Any
) -> LintPlan:
    """Make the plan for ``session``. ``budgets`` have the syntax of --budget; errors in them name ``place``. ``more``
    are fields of LintPlan."""
    from perftool.engine.gate.budgets import budget_option
    from perftool.engine.gate.lint import LintPlan

    parsed = tuple(budget_option(text, place) for text in budgets)
    names = {limit.name for limit in parsed}
    kept = tuple(limit for limit in session.settings.limits if limit.name not in names)
    settings = replace(session.settings, limits=kept + parsed, file_ignores=session.choice.file_ignores)
    return LintPlan(session.choice.rules, settings, root, **more)


def _plan(session: Session, call: _Call, whole: bool) -> LintPlan:
    if call.write_baseline:
        # The baseline is about to be written, so the old one must not hide findings, and need not exist.
        session.settings = replace(session.settings, baseline=None)
    return plan_of(
        session, project_root(), call.budgets, stdin_name=call.stdin_name, allow_empty=call.allow_empty, whole=whole
    )


def _inputs(session: Session, paths: Sequence[str], targets: Sequence[str | None], allow_empty: bool) -> Inputs:
    from perftool.readers.discover import Inputs

    try:
        return session.inputs(paths, targets)
    except NoInputError:
        if not allow_empty:
            raise
        return Inputs((), ())


def _accepted(result: LintReport, plan: LintPlan, target: str | None) -> LintReport:
    """Write a baseline of the findings to ``target``, if given, and judge ``result`` again with it."""
    if target is None:
        return result
    from perftool.engine.gate.baseline import read_baseline, render_baseline
    from perftool.engine.gate.lint import accept

    write_document(render_baseline(result.findings), target)
    return accept(result, read_baseline(Path(target)), plan.settings)


def _finish(result: LintReport, session: Session, sinks: list[Sink], call: _Call) -> None:
    cli = session.cli
    # Files are written first: a reader that closes stdout early ends the program.
    wanted = [sink for sink in sinks if sink.to_file or not cli.silent]
    ordered = sorted(wanted, key=lambda sink: not sink.to_file)
    written = [text for sink in ordered for text in emit(result, sink, cli.color, cli.is_quiet, call.statistics)]
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and any(sink.format is LintFormat.github for sink in sinks):
        _append_summary(result, Path(summary))
    accepted = _accepted_notes(result, call.write_baseline)
    session.note([*session.choice.warnings, *_idle_notes(result), *accepted, *written])


def _accepted_notes(result: LintReport, target: str | None) -> list[str]:
    """Say which findings the new baseline accepts, and which no baseline can accept."""
    if target is None:
        return []
    counts = Counter(found.finding.code for found in result.findings if found.suppressed)
    listed = ", ".join(code if count == 1 else f"{code} ({count})" for code, count in sorted(counts.items()))
    number = sum(counts.values())
    accepted = f"Accepted {number} finding{'' if number == 1 else 's'}{f': {listed}' if listed else ''}"
    refused = sorted({found.finding.code for found in result.active})
    left = [f"not accepted: {', '.join(refused)}; a baseline cannot accept findings of these rules"] if refused else []
    return [accepted, *left, *written_note(target)]


def _coverage_notes(result: LintReport, plan: LintPlan) -> list[str]:
    """Warn if a budget limits the step time, but complete steps cover less than half of the recording.

    This is not a finding, because a recording may contain the program's start-up or an evaluation.
    """
    from perftool.engine.report.complete_steps import least_covered

    if not any(budget.query is None and budget.name == "step_time_ms" for budget in plan.budgets):
        return []
    recorded = {one.rank: one.recorded_ns for one in result.report.ranks if one.recorded_ns is not None}
    share = least_covered(result.report.steps, recorded)
    if share is None or 2 * share >= 1:
        return []
    return [
        f"the step_time_ms budget applies to complete steps, which cover only {format_ratio(share)} of the recording"
    ]


def _idle_notes(result: LintReport) -> list[str]:
    """List the per-file ignores and baseline entries that match no finding."""
    ignores = [f"per-file ignore without effect: {text}" for text in result.idle_ignores]
    notes = [f"stale baseline entry: {entry.code} {entry.subject} ({entry.file})" for entry in result.stale]
    advice = ["rewrite the baseline with --write-baseline to drop them"] if notes else []
    here = {(found.finding.code, found.finding.subject) for found in result.active}
    if any((entry.code, entry.subject) in here for entry in result.stale):
        advice.insert(
            0,
            "--baseline-paths accepts a finding only in the file that its entry names: "
            "record to the same path each time",
        )
    return [*ignores, *notes, *advice]


def _append_summary(result: LintReport, target: Path) -> None:
    from perftool.reporters.lint.github import render_step_summary

    with write_errors_named(target), target.open("ab") as file:
        file.write(render_step_summary(result))
