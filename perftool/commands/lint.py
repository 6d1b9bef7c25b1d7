"""``lint``: a run as a gate for CI."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.lint_output import Sink, emit, parse_sinks
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.output import require_no_input, said, write_document
from perftool.commands.prepare import Prepared, note, prepare, project_root
from perftool.commands.progress import progress
from perftool.commands.settings import show_settings
from perftool.errors import NoInputError, PerfToolError
from perftool.model.choices import CONFIDENCES, FAIL_ON, LintFormat, one_of

if TYPE_CHECKING:
    from perftool.engine.gate.lint import LintPlan
    from perftool.model.lint import LintReport
    from perftool.readers.files.discover import Inputs

_GATE = "Gate"
_OUTPUT = "Output"
FailOn = Annotated[
    str | None,
    typer.Option(
        metavar="SEVERITY", rich_help_panel=_GATE,
        help=f"Exit 1 from this severity on: {one_of(FAIL_ON, 'warning')}.",
    ),
]  # fmt: skip
ExitZero = Annotated[
    bool,
    typer.Option(
        "--exit-zero", "-e", metavar=options.NO_VALUE, help="Exit 0 even with findings.", rich_help_panel=_GATE
    ),
]
MinConfidence = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help=f"Hide findings below: {one_of(CONFIDENCES)}.", rich_help_panel=_GATE),
]
Baseline = Annotated[
    str | None, typer.Option(metavar="FILE", help="Subtract these accepted findings.", rich_help_panel=_GATE)
]
BaselinePaths = Annotated[
    bool,
    typer.Option(
        "--baseline-paths", metavar=options.NO_VALUE, rich_help_panel=_GATE,
        help="Accept a finding in its file only, not wherever it is found.",
    ),
]  # fmt: skip
WriteBaseline = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Accept today's findings: write them here.", rich_help_panel=_GATE),
]
BudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget", metavar="LIMIT", rich_help_panel=_GATE,
        help="Limit of a number: 'step_time_ms<=120', or 'name: SELECT ... <= 10'; repeatable.",
    ),
]  # fmt: skip
FormatOption = Annotated[
    LintFormat | None,
    typer.Option(
        "--output-format", metavar="FORMAT", envvar="HABANA_PERF_TOOL_OUTPUT_FORMAT", rich_help_panel=_OUTPUT,
        help=f"Format of the findings: {one_of(LintFormat, 'text')}.",
    ),
]  # fmt: skip
Also = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FORMAT:FILE",
        help="Write this format too: sarif:out.sarif; repeatable.",
        rich_help_panel=_OUTPUT,
    ),
]
Statistics = Annotated[
    bool,
    typer.Option(
        "--statistics",
        metavar=options.NO_VALUE,
        help="Print how often each rule fired instead.",
        rich_help_panel=_OUTPUT,
    ),
]
AllowEmpty = Annotated[
    bool,
    typer.Option(
        "--allow-empty",
        metavar=options.NO_VALUE,
        help="Succeed when there is nothing to check.",
        rich_help_panel="File selection",
    ),
]
StdinName = Annotated[
    str | None,
    typer.Option("--stdin-filename", metavar="NAME", help="Name of what '-' reads.", rich_help_panel="File selection"),
]


@dataclass(frozen=True)
class _Call:
    """What this call of ``lint`` asks for besides settings."""

    paths: list[str]
    texts: list[str]
    also: list[str]
    write_baseline: str | None
    stdin_name: str | None
    allow_empty: bool
    statistics: bool
    show_settings: bool
    color: Color
    quiet: bool
    silent: bool
    ranks: Ranks


def lint(
    paths: options.Paths = None,
    log: options.Logs = None,
    metrics: options.Metrics = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    extend_select: options.ExtendSelect = None,
    extend_ignore: options.ExtendIgnore = None,
    per_file_ignores: options.PerFileIgnores = None,
    extend_per_file_ignores: options.ExtendPerFileIgnores = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    fail_on: FailOn = None,
    exit_zero: ExitZero = False,
    min_severity: options.MinSeverity = None,
    min_confidence: MinConfidence = None,
    baseline: Baseline = None,
    write_baseline: WriteBaseline = None,
    baseline_paths: BaselinePaths = False,
    budget: BudgetOption = None,
    output_format: FormatOption = None,
    output_file: options.OutputFile = None,
    also: Also = None,
    statistics: Statistics = False,
    exclude: options.Exclude = None,
    source_root: options.SourceRoots = None,
    allow_empty: AllowEmpty = False,
    stdin_filename: StdinName = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    settings: options.ShowSettings = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    as_one_run: options.AsOneRun = False,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
    silent: options.Silent = False,
) -> None:
    """Fail when a run has findings: a gate for CI

    Exit code 0: no finding at or above --fail-on; 1: at least one; 2: not run properly. Examples:

      habana_perf_tool lint traces/ --baseline accepted.json --also sarif:a.sarif"""
    given = Given(select, ignore, extend_select, extend_ignore, preview, rules, exclude, output_format, output_file,
                  fail_on, exit_zero or None, min_severity, min_confidence, baseline, per_file_ignores,
                  extend_per_file_ignores, source_root, baseline_paths or None)  # fmt: skip
    call = _Call(paths or [], [*(log or ()), *(metrics or ())], also or [], write_baseline, stdin_filename, allow_empty,
                 statistics, settings, color, quiet or silent, silent, Ranks(jobs, scheduler, as_one_run))  # fmt: skip
    _lint(_with_budgets(prepare(call.paths, config or [], isolated, given, trust_config), budget or []), call)


def _lint(prepared: Prepared, call: _Call) -> None:
    if call.show_settings:
        show_settings(prepared.settings)
        return
    if not call.paths and not call.texts:
        raise PerfToolError("lint needs PATHS: files, folders, globs, or '-'")
    sinks = parse_sinks(prepared.settings, call.also, call.statistics)
    plan = _plan(prepared, call)
    result = _accepted(_run(plan, call, [sink.target for sink in sinks]), plan, call.write_baseline)
    _finish(result, prepared, sinks, call)


def _with_budgets(prepared: Prepared, texts: list[str]) -> Prepared:
    from perftool.engine.gate.budgets import budget_option

    given = tuple(budget_option(text) for text in texts)
    names = {budget.name for budget in given}
    kept = tuple(budget for budget in prepared.settings.budgets if budget.name not in names)
    return replace(prepared, settings=replace(prepared.settings, budgets=kept + given))


def _plan(prepared: Prepared, call: _Call) -> LintPlan:
    from perftool.engine.gate.lint import LintPlan

    # What is about to be written anew need not exist yet.
    settings = replace(prepared.settings, baseline=None) if call.write_baseline else prepared.settings
    return LintPlan(prepared.rules, settings, project_root(), call.stdin_name)


def _run(plan: LintPlan, call: _Call, targets: Sequence[str | None]) -> LintReport:
    from perftool.engine.gate.lint import lint_inputs
    from perftool.engine.ranks.choice import choose_schedule

    inputs = _inputs(plan, call)
    require_no_input([*targets, call.write_baseline], inputs.files)
    note(() if call.quiet else inputs.notes, call.color)
    schedule = choose_schedule(inputs.traces, call.ranks.jobs, call.ranks.scheduler)
    with progress(call.quiet) as show:
        return lint_inputs(inputs, plan, show, schedule)


def _inputs(plan: LintPlan, call: _Call) -> Inputs:
    from perftool.readers.files.discover import Inputs, find_inputs

    try:
        return find_inputs(call.paths, call.texts, plan.settings.exclude, as_one_run=call.ranks.as_one_run)
    except NoInputError:
        if not call.allow_empty:
            raise
        return Inputs((), ())


def _accepted(result: LintReport, plan: LintPlan, target: str | None) -> LintReport:
    """``result`` as it is with the baseline written to ``target`` from its findings."""
    if target is None:
        return result
    from perftool.engine.gate.baseline import read_baseline, render_baseline
    from perftool.engine.gate.lint import accept

    write_document(render_baseline(result.findings), target)
    return accept(result, read_baseline(Path(target)), plan.settings)


def _finish(result: LintReport, prepared: Prepared, sinks: list[Sink], call: _Call) -> None:
    # Files first: a reader that closes stdout early ends the program.
    wanted = [sink for sink in sinks if sink.to_file or not call.silent]
    ordered = sorted(wanted, key=lambda sink: not sink.to_file)
    written = [text for sink in ordered for text in emit(result, sink, call.color, call.quiet, call.statistics)]
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and any(sink.format is LintFormat.github for sink in sinks):
        _append_summary(result, Path(summary))
    if not call.quiet:
        accepted = _accepted_notes(result, call.write_baseline)
        note([*prepared.warnings, *_idle_notes(result), *accepted, *written], call.color)
    if result.fails:
        raise typer.Exit(1)


def _accepted_notes(result: LintReport, target: str | None) -> list[str]:
    """What the baseline that was written accepts, and what no baseline can."""
    if target is None:
        return []
    counts = Counter(found.finding.code for found in result.findings if found.suppressed)
    listed = ", ".join(code if count == 1 else f"{code} ({count})" for code, count in sorted(counts.items()))
    number = sum(counts.values())
    accepted = f"Accepted {number} finding{'' if number == 1 else 's'}{f': {listed}' if listed else ''}"
    refused = sorted({found.finding.code for found in result.active})
    left = [f"not accepted, because no baseline can hold it: {', '.join(refused)}"] if refused else []
    return [accepted, *left, *said(target)]


def _idle_notes(result: LintReport) -> list[str]:
    """What accepts or ignores findings that are not there."""
    ignores = [f"per-file ignore that silences nothing: {text}" for text in result.idle_ignores]
    notes = [f"stale baseline entry: {entry.code} {entry.subject} ({entry.file})" for entry in result.stale]
    advice = ["rewrite the baseline with --write-baseline to drop them"] if notes else []
    here = {(found.finding.code, found.finding.subject) for found in result.active}
    if any((entry.code, entry.subject) in here for entry in result.stale):
        advice.insert(0, "--baseline-paths accepts a finding in its file only: record to the same path each time")
    return [*ignores, *notes, *advice]


def _append_summary(result: LintReport, target: Path) -> None:
    from perftool.reporters.lint.github import render_step_summary

    try:
        with target.open("ab") as file:
            file.write(render_step_summary(result))
    except OSError as error:
        raise PerfToolError(f"{target}: cannot be written ({error.strerror or error})") from None
