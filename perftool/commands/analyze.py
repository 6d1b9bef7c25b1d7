"""``analyze``: what was read, where the time goes, what to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import each as each_command
from perftool.commands import options
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.output import print_document, require_no_input, said, write_document
from perftool.commands.prepare import Prepared, note, prepare
from perftool.commands.progress import progress
from perftool.commands.settings import show_settings
from perftool.errors import PerfToolError
from perftool.model.choices import ReportFormat as Format
from perftool.output_file import append_to_file

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.model.report import Report
    from perftool.readers.files.discover import Inputs


FormatOption = Annotated[Format | None, options.REPORT_FORMAT]
Top = Annotated[
    int | None,
    typer.Option("--top", metavar="N", min=1, help="Findings to show; the default fits the screen.",
                 rich_help_panel="Output"),
]  # fmt: skip
Each = Annotated[
    bool,
    typer.Option("--each", metavar=options.NO_VALUE, rich_help_panel="Many ranks",
                 help="Every trace is a run of its own; print one line for each."),
]  # fmt: skip


Part = Annotated[
    str | None,
    typer.Option("--part", metavar="FILE", rich_help_panel="Many ranks",
                 help="Write what is known of these ranks to FILE (*.part) instead, for merge."),
]  # fmt: skip
SummaryLines = Annotated[
    str | None,
    typer.Option("--summary-jsonl", metavar="FILE", rich_help_panel="Output",
                 help="Append a line with the numbers of the run, and one per rank, to FILE, for trend."),
]  # fmt: skip


Watch = Annotated[
    str | None,
    typer.Option("--watch", metavar="DIR", rich_help_panel="Over time",
                 help="Print a line for each trace that appears in DIR, once it is finished, until interrupted."),
]  # fmt: skip
Interval = Annotated[
    float,
    typer.Option("--interval", metavar="SECONDS", min=0.1, rich_help_panel="Over time",
                 help="Time between two looks of --watch; a trace that both find the same is finished."),
]  # fmt: skip


@dataclass(frozen=True)
class View:
    """How much of the text to print: all tables, how many findings, and whether each trace is a run of its own.

    ``part`` is the file to write a part to, instead of all this, ``captures`` are traces of captures of graphs,
    ``summaries`` the file that gets the lines for trend, ``watch`` a folder to look into every ``interval_s``.
    """

    full: bool = False
    top: int | None = None
    each: bool = False
    part: str | None = None
    captures: tuple[str, ...] = ()
    summaries: str | None = None
    watch: str | None = None
    interval_s: float = 10.0


def analyze(
    paths: options.Paths = None,
    log: options.Logs = None,
    metrics: options.Metrics = None,
    capture: options.Captures = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    extend_select: options.ExtendSelect = None,
    extend_ignore: options.ExtendIgnore = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    output_format: FormatOption = None,
    output_file: options.OutputFile = None,
    min_severity: options.MinSeverity = None,
    full: options.Full = False,
    top: Top = None,
    each: Each = False,
    exclude: options.Exclude = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    settings: options.ShowSettings = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    as_one_run: options.AsOneRun = False,
    part: Part = None,
    summary_jsonl: SummaryLines = None,
    watch: Watch = None,
    interval: Interval = View.interval_s,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Print where the time goes and what to change

    Several traces are ranks of one run. Logs, metrics files and configuration that lie beside a trace are found.

    Examples:

      zcat run.json.gz | habana_perf_tool analyze -
    """
    texts = [*(log or ()), *(metrics or ())]
    given = Given(select, ignore, extend_select, extend_ignore, preview, rules, exclude,
                  output_format and output_format.value, output_file, min_severity=min_severity)  # fmt: skip
    prepared = prepare(paths or texts or [watch or "."], config or [], isolated, given, trust_config)
    view = View(full, top, each, part, tuple(capture or ()), summary_jsonl, watch, interval)
    if settings:
        show_settings(prepared.settings)
    else:
        run(paths or [], texts, prepared, color, quiet, view, Ranks(jobs, scheduler, as_one_run))


def run(
    paths: Sequence[str],
    logs: Sequence[str],
    prepared: Prepared,
    color: Color,
    quiet: bool,
    view: View | None = None,
    ranks: Ranks | None = None,
) -> None:
    """Analyse ``paths`` and the ``logs`` of the same run, and print or write the report."""
    from perftool.readers.files.discover import find_inputs

    view, ranks = view or View(), ranks or Ranks()
    if view.watch is not None:
        _watch(view.watch, [*paths, *logs], prepared, color, quiet, view)
        return
    if not paths and not logs:
        raise PerfToolError("analyze needs PATHS: files, folders, globs, or '-'")
    # Of several runs each trace is looked at by itself, or all are taken for one.
    any_run = ranks.as_one_run or view.each
    inputs = find_inputs(paths, logs, prepared.settings.exclude, as_one_run=any_run)
    if not view.each:
        run_on(replace(inputs, captures=view.captures), prepared, color, quiet, view, ranks)
        return
    _require_outputs(inputs, prepared, view)
    _require_lines(logs, prepared, "--each")
    each_command.print_each(inputs.traces, prepared, color, quiet)


def run_on(inputs: Inputs, prepared: Prepared, color: Color, quiet: bool, view: View, ranks: Ranks) -> None:
    """Analyse ``inputs``, and print or write the report, or the part that the ``view`` asks for."""
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.choice import choose_schedule
    from perftool.engine.ranks.part_file import render_part
    from perftool.engine.report.source_places import place_sources

    settings = prepared.settings
    _require_outputs(inputs, prepared, view)
    schedule = choose_schedule(inputs.traces, ranks.jobs, ranks.scheduler)
    with progress(quiet) as show, analysed(inputs, prepared.rules, schedule, show) as run:
        if view.part is not None:
            write_document(render_part(run.part), view.part)
            note([*inputs.notes, *prepared.warnings, *said(view.part)] if not quiet else [], color)
            return
        report = place_sources(run.report, (Path.cwd(), *settings.source_roots))
    # Files first: a reader that closes stdout early ends the program.
    if view.summaries is not None:
        from perftool.reporters.run_lines import render_run_lines

        append_to_file(render_run_lines(report, datetime.now(timezone.utc)), Path(view.summaries))
    form = _format(prepared)
    if form is Format.text:
        print_document(_printer(report, view, prepared), settings.output_file, color.value)
    else:
        write_document(_document(report, form), settings.output_file)
    if not quiet:
        note([*inputs.notes, *prepared.warnings, *said(settings.output_file)], color)


def _watch(folder: str, others: Sequence[str], prepared: Prepared, color: Color, quiet: bool, view: View) -> None:
    if others or view.each or view.part or view.captures or view.full or view.top:
        raise PerfToolError("--watch DIR takes no other paths, and prints a line for each trace")
    _require_lines((), prepared, "--watch")
    if view.summaries is not None:
        _require_place(view)
    each_command.watch(folder, prepared, color, quiet, view.summaries, view.interval_s)


def _require_outputs(inputs: Inputs, prepared: Prepared, view: View) -> None:
    """Raise PerfToolError unless every output has a place: beside the inputs, and as readers of it will look for it."""
    require_no_input([prepared.settings.output_file, view.part, view.summaries], inputs.files)
    if view.summaries is not None:
        _require_place(view)
    if view.part is not None:
        _require_part_name(view.part)


def _require_lines(logs: Sequence[str], prepared: Prepared, option: str) -> None:
    if logs or _format(prepared) is not Format.text:
        raise PerfToolError(f"{option} prints text, of traces only: leave out --log, --metrics and --output-format")


def _require_place(view: View) -> None:
    """Raise PerfToolError unless there will be lines for a summary file, and it can hold them."""
    from perftool.readers.metrics.run_lines import require_summaries

    if view.part is not None or view.each or view.summaries == "-":
        raise PerfToolError("--summary-jsonl needs a report and a file: leave out --part, --each and '-'")
    require_summaries(str(view.summaries))


def _require_part_name(name: str) -> None:
    """Raise PerfToolError when a part of this name would not be found again."""
    from perftool.readers.files.discover import PART_SUFFIX

    if not name.endswith(PART_SUFFIX):
        raise PerfToolError(f"--part {name}: the name of a part ends in {PART_SUFFIX}")


def _document(report: Report, form: Format) -> bytes:
    if form is Format.json:
        from perftool.reporters.json import render_json

        return render_json(report)
    from perftool.reporters.openmetrics import render_openmetrics

    return render_openmetrics(report)


def _printer(report: Report, view: View, prepared: Prepared) -> Callable[[Console], None]:
    from perftool.reporters.terminal.choice import Choice

    choice = Choice(view.top, prepared.settings.min_severity)
    if view.full:
        from perftool.reporters.terminal.full import print_full

        return partial(print_full, report, choice=choice)
    from perftool.reporters.terminal.answer import print_answer

    return partial(print_answer, report, choice=choice)


def _format(prepared: Prepared) -> Format:
    """The format of the settings; a file may name one that only ``lint`` has, which then means nothing here."""
    name = prepared.settings.output_format
    return Format(name) if name in {form.value for form in Format} else Format.text
