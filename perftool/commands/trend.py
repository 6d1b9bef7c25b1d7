"""``trend``: a metric over many runs, and whether it got worse."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from perftool.commands import options
from perftool.commands.output import exit_code, is_file, print_document, print_notes, write_document, written_note
from perftool.model.choices import Color
from perftool.model.trend import DEFAULT_LAST, DEFAULT_METRIC, DEFAULT_THRESHOLD, FEWEST_RUNS, MOST_LAST, Trend
from perftool.output_file import require_apart


class Format(str, Enum):
    """How to print the trend."""

    text = "text"
    json = "json"
    html = "html"


def trend(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Summary file of analyze --summary-jsonl, or '-'.")],
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="Summary metric to show.", show_default=True)
    ] = DEFAULT_METRIC,
    threshold: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            min=0,
            help="Exit 1 when the metric is worse by more than this; in percentage points for ratios.",
        ),
    ] = DEFAULT_THRESHOLD,
    rank: Annotated[int | None, typer.Option(metavar="N", help="Show this rank instead of the whole run.")] = None,
    only: Annotated[str | None, typer.Option(metavar="GLOB", help="Only runs whose name matches.")] = None,
    since: Annotated[
        str,
        typer.Option(metavar="DATE", help="Only runs since this date, such as 2026-01-31; earlier runs are ignored."),
    ] = "",
    last: Annotated[
        int, typer.Option(metavar="N", min=2 * FEWEST_RUNS, max=MOST_LAST, help="Number of runs to judge and to show.")
    ] = DEFAULT_LAST,
    output_format: Annotated[Format, options.format_of(Format, "the trend")] = Format.text,
    output_file: options.OutputFile = None,
    color: options.ColorOption = Color.auto,
    quiet: options.Quiet = False,
    silent: options.Silent = False,
) -> None:
    """Show a metric over many runs, and fail if it got worse

    A statistical method finds levels and the changes between them. Exit 1: the last level, of at least 3 runs, is worse
    than the best level before it by more than --threshold. Exit 2: the newest run is not the last one in the
    file, does not show the metric, lacks the chosen rank or a rank that most runs have, had an input that could not be
    read in full, or has settings that fewer than 6 runs in the file share. The command needs the extra trend.

    Examples:

      habana_perf_tool analyze traces/ --summary-jsonl nightly.jsonl

      habana_perf_tool trend nightly.jsonl

      habana_perf_tool trend nightly.jsonl --metric peak_memory_bytes
    """
    from perftool.engine.compare.trend import trend_of
    from perftool.readers.metrics.run_lines import read_history

    require_apart([output_file], [file])
    found = trend_of(read_history(file), metric, rank=rank, only=only, since=since, last=last, threshold=threshold)
    with exit_code(1 if found.fails else 0, found.unjudged and f"{file}: {found.unjudged}"):
        if is_file(output_file) or not silent:
            _write(found, file, output_format, output_file, color)
        print_notes(() if quiet or silent else written_note(output_file), color)


def _write(found: Trend, file: str, form: Format, target: str | None, color: Color) -> None:
    from perftool.reporters.html.trend import render_trend_html
    from perftool.reporters.trend import print_trend, render_trend_json

    if form is Format.text:
        print_document(lambda console: print_trend(found, file, console), target, color.value)
    else:
        document = render_trend_json(found) if form is Format.json else render_trend_html(found, file)
        write_document(document, target, verbatim=form is not Format.json)
