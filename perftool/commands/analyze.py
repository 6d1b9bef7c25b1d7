"""``analyze``: what was read, where the time goes, what to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perftool.commands import each as each_command
from perftool.commands.options import NO_VALUE, CliSettings, Paths, time_option
from perftool.commands.output import print_document, write_document, written_note
from perftool.commands.session import Session, open_run
from perftool.errors import PerfToolError
from perftool.model.choices import Color
from perftool.model.choices import ReportFormat as Format
from perftool.output_file import append_to_file

if TYPE_CHECKING:
    from rich.console import Console

    from perftool.model.report import Report
    from perftool.readers.discover import Inputs


Each = Annotated[
    bool,
    typer.Option("--each", metavar=NO_VALUE, rich_help_panel="Many ranks",
                 help="Treat every trace as a separate run, and print one line for each."),
]  # fmt: skip
Watch = Annotated[
    str | None,
    typer.Option("--watch", metavar="DIR", rich_help_panel="Over time",
                 help="Print a line for each trace that appears in DIR, once it is finished, until interrupted."),
]  # fmt: skip
Interval = Annotated[
    float,
    time_option(
        0.1,
        "Time between two scans of --watch, at most a day; a trace is finished when two scans find it unchanged.",
        panel="Over time",
    ),
]


def analyze(
    cli: CliSettings, paths: Paths = None, each: Each = False, watch: Watch = None, interval: Interval = 10.0
) -> None:
    """Print where the time goes and what to change

    Several traces are read as the ranks of one run. Logs, metrics files and configurations next to them are also read.

    Examples:

      zcat run.json.gz | habana_perf_tool analyze -
    """
    # A gate may later judge the summary (``trend``) or the part (``lint``, ``diff``) that this command writes.
    gate = cli.summary_jsonl is not None or cli.part is not None
    session = Session(cli, paths or ([watch] if watch else []), gate=gate)
    if watch is not None:
        _watch(watch, paths or session.texts or each, session, interval)
    elif each:
        _each(paths or [], session)
    else:
        show_report(session, session.inputs(paths or [], _outputs(session)))


def show_report_on(traces: Sequence[str], color: Color, texts: Sequence[str] = ()) -> None:
    """Print the report on ``traces`` from our recorder or simulator. ``texts`` are their logs and metrics files."""
    session = Session(CliSettings(color=color, quiet=True, keys={"log": list(texts)} if texts else {}), traces)
    show_report(session, session.inputs(traces))


def show_report(session: Session, inputs: Inputs) -> None:
    """Analyse ``inputs``, and print or write the report, or write a part (--part)."""
    from perftool.engine.ranks.part_file import render_part
    from perftool.engine.report.source_places import place_sources

    settings, cli = session.settings, session.cli
    _require_outputs(session)
    with open_run(session, inputs) as run:
        if cli.part is not None:
            write_document(render_part(run.part), cli.part)
            session.note([*session.choice.warnings, *written_note(cli.part)])
            return
        report = place_sources(run.report, (Path.cwd(), *settings.source_roots))
        empty = run.unrecognised(report)
    # Files are written first: a reader that closes stdout early ends the program.
    if cli.summary_jsonl is not None:
        from perftool.reporters.run_lines import render_run_lines

        lines = render_run_lines(report, datetime.now(timezone.utc), unrecognised=len(empty))
        append_to_file(lines, Path(cli.summary_jsonl))
    form = _format(session)
    if form is Format.text:
        print_document(_printer(report, session), settings.output_file, cli.color.value)
    else:
        write_document(_document(report, form), settings.output_file)
    session.note([*session.choice.warnings, *_unrecognised_note(empty), *written_note(settings.output_file)])


def _unrecognised_note(paths: Sequence[str]) -> list[str]:
    if not paths:
        return []
    from perftool.engine.gate.lint import unrecognised_text

    return [unrecognised_text(paths)]


def _each(paths: Sequence[str], session: Session) -> None:
    inputs = session.inputs(paths, _outputs(session), each=True)
    _require_outputs(session, lines="--each")
    each_command.print_each([*inputs.traces, *(one.path for one in inputs.set_aside)], session)


def _watch(folder: str, others: object, session: Session, interval_s: float) -> None:
    cli = session.cli
    if others or cli.part or cli.full or cli.top:
        raise PerfToolError(
            "--watch DIR prints a line for each trace in DIR: leave out other inputs, --each, --part, --full and --top"
        )
    _require_outputs(session, lines="--watch")
    each_command.watch(folder, session, interval_s)


def _outputs(session: Session) -> list[str | None]:
    return [session.settings.output_file, session.cli.part, session.cli.summary_jsonl]


def _require_outputs(session: Session, lines: str | None = None) -> None:
    """Raise PerfToolError for an invalid output file name, and for an output that conflicts with ``lines``: the option
    that prints a line per trace instead of a report.
    """
    if lines is not None:
        _require_lines(session, lines)
    if session.cli.summary_jsonl is not None:
        _require_place(session.cli, lines == "--each")
    if session.cli.part is not None:
        _require_part_name(session.cli.part)


def _require_lines(session: Session, option: str) -> None:
    if session.texts or _format(session) is not Format.text:
        raise PerfToolError(
            f"{option} reads only traces and prints only text: leave out --log, --metrics and --output-format"
        )


def _require_place(cli: CliSettings, each: bool) -> None:
    """Raise PerfToolError if --summary-jsonl has no report to summarise or no file to write to."""
    from perftool.readers.metrics.run_lines import require_summaries

    if cli.part is not None or each or cli.summary_jsonl == "-":
        raise PerfToolError("--summary-jsonl needs a report and a file: leave out --part, --each and '-'")
    require_summaries(str(cli.summary_jsonl))


def _require_part_name(name: str) -> None:
    from perftool.readers.discovery.names import PART_SUFFIX

    if not name.endswith(PART_SUFFIX):
        raise PerfToolError(f"--part {name}: the name of a part must end in {PART_SUFFIX}")


def _document(report: Report, form: Format) -> bytes:
    if form is Format.json:
        from perftool.reporters.json import render_json

        return render_json(report)
    from perftool.reporters.openmetrics import render_openmetrics

    return render_openmetrics(report)


def _printer(report: Report, session: Session) -> Callable[[Console], None]:
    from perftool.reporters.terminal.choice import Choice

    choice = Choice(session.cli.top, session.settings.min_severity)
    if session.cli.full:
        from perftool.reporters.terminal.full import print_full

        return partial(print_full, report, choice=choice)
    from perftool.reporters.terminal.answer import print_answer

    return partial(print_answer, report, choice=choice)


def _format(session: Session) -> Format:
    """Return the format from the settings; text if only ``lint`` supports that format."""
    name = session.settings.output_format
    return Format(name) if name in {form.value for form in Format} else Format.text
