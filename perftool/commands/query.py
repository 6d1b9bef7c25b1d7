"""``query``: ask the tables directly."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from perftool.commands import options
from perftool.commands.numpy_first import load_numpy
from perftool.commands.options import Ranks
from perftool.commands.output import require_no_input, said, write_document
from perftool.commands.prepare import note
from perftool.commands.progress import progress
from perftool.errors import PerfToolError, QueryError


class Format(str, Enum):
    """How to print the rows."""

    table = "table"
    csv = "csv"
    json = "json"


def query(
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="A trace, a folder, a glob, or '-'.")] = None,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="One SELECT over the tables.")] = None,
    tables: Annotated[
        bool, typer.Option("--tables", metavar=options.NO_VALUE, help="List the tables and their columns.")
    ] = False,
    output_format: Annotated[
        Format,
        typer.Option("--output-format", metavar="FORMAT", help="Format of the rows: table, csv, json."),
    ] = Format.table,
    output_file: options.OutputFile = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Give up after this long.")] = 60.0,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    as_one_run: options.AsOneRun = False,
) -> None:
    """Ask the tables of a trace with SQL

    The SQL is DuckDB's; it can read the tables and nothing else.

    Examples:

      habana_perf_tool query --tables

      habana_perf_tool query run.json "SELECT cause, dur FROM gap_causes"
    """
    if tables:
        _list_tables(output_file)
    elif path is None or sql is None:
        raise PerfToolError("query needs a PATH and a SELECT, or --tables")
    else:
        _run(path, sql, output_format, output_file, time_limit, Ranks(jobs, scheduler, as_one_run))


def _run(path: str, sql: str, output_format: Format, output_file: str | None, time_limit: float, ranks: Ranks) -> None:
    """Run one SELECT over the tables of the traces at ``path``."""
    load_numpy()
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.choice import choose_schedule
    from perftool.readers.files.discover import find_inputs
    from perftool.store.room.room import Bounds

    inputs = find_inputs([path], as_one_run=ranks.as_one_run)
    require_no_input([output_file], inputs.files)
    note(inputs.notes)
    schedule = choose_schedule(inputs.traces, ranks.jobs, ranks.scheduler)
    with progress() as show, analysed(inputs, (), schedule, show) as opened:
        try:
            result = opened.ask(sql, Bounds(time_limit))
        except QueryError as error:
            raise QueryError(f"{error}{_tables_there_are(str(error))}") from None
    write_document(_RENDER[output_format](result.columns, result.rows), output_file)
    cut = [f"only the first {len(result.rows):,} rows: a query gives no more at once"] if result.cut else []
    note([*cut, *said(output_file)])


def _tables_there_are(error: str) -> str:
    """What to add to an ``error`` about a table that there is not."""
    from perftool.store.catalog import public_tables

    if not error.startswith("there is no table"):
        return ""
    return f"; there are {', '.join(table.name for table in public_tables())}, raw"


def _list_tables(output_file: str | None) -> None:
    """Print every public table with its columns."""
    from perftool.store.catalog import public_tables

    text = []
    for table in public_tables():
        text.append(f"{table.name}: {' '.join(table.summary.split())}")
        text += [f"  {column.name:16} {column.type:8} {column.meaning}" for column in table.columns]
        text.append("")
    write_document("\n".join(text).encode(), output_file)
    note(said(output_file))


def _as_table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    from rich.table import Table
    from rich.text import Text

    from perftool.reporters.console import make_console
    from perftool.reporters.escape import one_line

    out = io.StringIO()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), no_wrap=True)
    for row in rows:
        table.add_row(*(Text("" if value is None else one_line(str(value))) for value in row))
    console = make_console("never", file=out)
    console.print(table, soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines()).encode()


def _as_csv(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue().encode()


def _as_json(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> bytes:
    import orjson

    from perftool.reporters.json import cleaned

    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise PerfToolError(f"two columns are called {twice}, which an object cannot have; rename one with AS")
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    return orjson.dumps(cleaned(objects), option=orjson.OPT_APPEND_NEWLINE)


_RENDER = {Format.table: _as_table, Format.csv: _as_csv, Format.json: _as_json}
