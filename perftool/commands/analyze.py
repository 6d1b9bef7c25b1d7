"""``analyze``: what was read, where the time goes, what to change."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import options
from perftool.commands.options import Color, Given, Ranks
from perftool.commands.output import print_document, require_no_input, said, write_document
from perftool.commands.prepare import Prepared, note, prepare
from perftool.commands.progress import progress
from perftool.commands.settings import show_settings
from perftool.errors import PerfToolError

if TYPE_CHECKING:
    pass


class Format(str, Enum):
    """How to print the report."""

    text = "text"
    json = "json"


FORMAT = typer.Option(
    "--output-format", metavar="FORMAT", envvar="HABANA_PERF_TOOL_OUTPUT_FORMAT", rich_help_panel="Output",
    help="Format of the report: text (the default), json.",
)  # fmt: skip
FormatOption = Annotated[Format | None, FORMAT]


def analyze(
    paths: options.Paths = None,
    log: options.Logs = None,
    metrics: options.Metrics = None,
    select: options.Select = None,
    ignore: options.Ignore = None,
    extend_select: options.ExtendSelect = None,
    extend_ignore: options.ExtendIgnore = None,
    preview: options.Preview = None,
    rules: options.RulePacks = None,
    output_format: FormatOption = None,
    output_file: options.OutputFile = None,
    exclude: options.Exclude = None,
    config: options.Config = None,
    isolated: options.Isolated = False,
    trust_config: options.TrustConfig = False,
    settings: options.ShowSettings = False,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
) -> None:
    """Print where the time goes and what to change

    Several traces are several ranks of one run. Logs, metrics files and configuration can be given too, alone or
    with a trace; those that lie beside a trace are found.

    Examples:

      habana_perf_tool analyze rank0.json.gz rank1.json.gz

      habana_perf_tool analyze traces/ --jobs 8

      zcat run.json.gz | habana_perf_tool analyze -
    """
    texts = [*(log or ()), *(metrics or ())]
    given = Given(
        select, ignore, extend_select, extend_ignore, preview, rules, exclude,
        output_format.value if output_format else None, output_file,
    )  # fmt: skip
    prepared = prepare(paths or texts, config or [], isolated, given, trust_config)
    if settings:
        show_settings(prepared.settings)
    elif not paths and not texts:
        raise PerfToolError("analyze needs PATHS: files, folders, globs, or '-'")
    else:
        run(paths or [], texts, prepared, color, quiet, Ranks(jobs, scheduler))


def run(
    paths: Sequence[str], logs: Sequence[str], prepared: Prepared, color: Color, quiet: bool, ranks: Ranks | None = None
) -> None:
    """Analyse ``paths`` and the ``logs`` of the same run, and print or write the report."""
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.choice import choose_schedule
    from perftool.readers.files.discover import find_inputs

    settings = prepared.settings
    inputs = find_inputs(paths, logs, settings.exclude)
    require_no_input([settings.output_file], [*inputs.traces, *inputs.texts])
    ranks = ranks or Ranks()
    schedule = choose_schedule(inputs.traces, ranks.jobs, ranks.scheduler)
    with progress(quiet) as show, analysed(inputs, prepared.rules, schedule, show) as run:
        report = run.report
    target = settings.output_file
    if _format(prepared) is Format.json:
        from perftool.reporters.json import render_json

        write_document(render_json(report), target)
    else:
        from perftool.reporters.text import print_report

        print_document(partial(print_report, report), target, color.value)
    if not quiet:
        note([*inputs.notes, *prepared.warnings, *said(target)], color)


def _format(prepared: Prepared) -> Format:
    """The format of the settings; a file may name one that only ``lint`` has, which then means nothing here."""
    name = prepared.settings.output_format
    return Format(name) if name in {form.value for form in Format} else Format.text
