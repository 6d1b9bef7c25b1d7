"""``query``: runs SQL on the tables."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import Enum
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from perftool.commands.options import NO_VALUE, CliSettings, OutputFile, time_option
from perftool.commands.output import print_notes, write_document, written_note
from perftool.commands.session import Session, open_run
from perftool.errors import PerfToolError, QueryError
from perftool.output_file import require_apart

if TYPE_CHECKING:
    from perftool.engine.analysis import Run
    from perftool.store.sandbox.sandbox import Bounds, Result


# The maximum number of rows to print at the prompt; more would scroll the query off the screen.
_SHOWN = 100


class Format(str, Enum):
    """How to print the rows."""

    table = "table"
    csv = "csv"
    json = "json"


def query(
    cli: CliSettings,
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="A trace, a folder, a glob, or '-'.")] = None,
    sql: Annotated[
        str | None, typer.Argument(metavar="SQL", help="One SELECT over the tables; without it, a prompt opens.")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", metavar=NO_VALUE, help="List the tables and their columns.")
    ] = False,
    file: Annotated[
        str | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Run the statements in FILE or stdin ('-'), each ended by ';'."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", metavar=NO_VALUE, help="Print the query plan with timings instead of the rows.")
    ] = False,
    output_format: Annotated[
        Format,
        typer.Option("--output-format", metavar="FORMAT", help="Format of the rows: table, csv, json."),
    ] = Format.table,
    output_file: OutputFile = None,
    time_limit: Annotated[float, time_option(0.001, "Give up after this long, at most a day.")] = 60.0,
) -> None:
    """Query the tables of a trace with SQL

    The SQL is DuckDB's; it can read the tables and nothing else.

    Examples:

      habana_perf_tool query --tables

      habana_perf_tool query run.json "SELECT cause, dur FROM gap_causes"

      habana_perf_tool query run.json
    """
    if tables:
        _list_tables(output_file)
        return
    if sql is not None and file is not None:
        raise PerfToolError("query takes a SELECT or -f FILE, not both")
    if path is None:
        raise PerfToolError("query needs the path of a trace, then a SELECT or -f FILE; without these, a prompt opens")
    if path == file == "-":
        raise PerfToolError("stdin cannot be both the trace and the statements")
    from perftool.store.sandbox.sandbox import Bounds

    bounds = Bounds(time_limit, explain=explain)
    session = Session(cli, [path])
    if sql is not None or file is not None:
        statements = _statements(file) if file is not None else [str(sql)]
        require_apart([output_file], [file] if file not in (None, "-") else [])
        _answer(session, path, statements, bounds, output_format, output_file)
    elif output_file is not None or not sys.stdin.isatty():
        raise PerfToolError("query needs a SELECT, or -f FILE (-f - reads stdin); a prompt opens only in a terminal")
    else:
        _converse(session, path, bounds, output_format)


def _statements(file: str) -> list[str]:
    """Read the statements in ``file``. Raise PerfToolError if it is unreadable or contains no statement."""
    from perftool.commands.statements import separated
    from perftool.readers.files.small_file import MOST_TEXT

    try:
        # Pipes are allowed: shells pass one for -f <(command).
        with _opened(file) as opened:
            data = opened.read(MOST_TEXT + 1)
        if len(data) > MOST_TEXT:
            raise OSError(0, f"larger than {MOST_TEXT >> 20} MiB")
        text = data.decode()
    except (OSError, ValueError) as error:
        raise PerfToolError(f"{file}: cannot read ({getattr(error, 'strerror', None) or error})") from None
    if not (found := separated(text)):
        raise PerfToolError(f"{file}: no SQL statement")
    return found


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb")


def _answer(
    session: Session, path: str, statements: Sequence[str], bounds: Bounds, form: Format, output_file: str | None
) -> None:
    """Run all statements, and write their results one after another."""
    with open_run(session, session.inputs([path], [output_file]), rules=()) as opened:
        results = []
        for number, sql in enumerate(statements, 1):
            try:
                results.append(_result(opened, sql, bounds))
            except QueryError as error:
                raise QueryError(f"statement {number}: {error}" if len(statements) > 1 else str(error)) from None
    # Each answer in JSON is one line; other formats need a blank line between answers.
    between = b"" if form is Format.json and not bounds.explain else b"\n"
    write_document(between.join(_rendered(result, form, bounds) for result in results), output_file)
    cut = [note for one in results for note in _cut_note(one)]
    session.note([*cut, *written_note(output_file)])


def _converse(session: Session, path: str, bounds: Bounds, form: Format) -> None:
    """Read the trace once, then run statements from the terminal."""
    from perftool.commands.query_prompt import GREETING, prompt, terminal

    read = terminal()

    def say(text: str) -> None:
        write_document(f"{text}\n".encode(), None)

    def ask(sql: str) -> str:
        return _on_screen(_result(opened, sql, bounds), form, bounds)

    inputs = session.inputs([path])
    # A spinner would overwrite what the user types.
    session.cli = replace(session.cli, quiet=True)
    with open_run(session, inputs, rules=()) as opened:
        say(GREETING)
        prompt(read, ask, say)


def _on_screen(result: Result, form: Format, bounds: Bounds) -> str:
    """Render the first rows, and say how many rows the result has."""
    rows = len(result.rows)
    shown = result if bounds.explain else replace(result, rows=result.rows[:_SHOWN])
    text = _rendered(shown, form, bounds).decode()
    if len(shown.rows) == rows:
        return text
    of = f"more than {rows:,}" if result.cut else f"{rows:,}"
    return f"{text}the first {_SHOWN} of {of} rows; LIMIT and OFFSET select others"


def _result(opened: Run, sql: str, bounds: Bounds) -> Result:
    try:
        return opened.ask(sql, bounds)
    except QueryError as error:
        text = str(error).removesuffix("!")
        raise QueryError(f"{text}{_table_hint(text)}{_column_hint(text, sql)}{_quote_hint(text)}") from None


def _cut_note(result: Result) -> list[str]:
    return [f"only the first {len(result.rows):,} rows: a query returns at most that many"] if result.cut else []


def _rendered(result: Result, form: Format, bounds: Bounds) -> bytes:
    """Render the rows, or the plan if the query was explained."""
    if bounds.explain:
        return "".join(f"{row[-1]}\n" for row in result.rows).encode()
    return _RENDER[form](result.columns, result.rows)


def _table_hint(error: str) -> str:
    """Return a hint to append if the ``error`` is about an unknown table or a statement that lists tables."""
    from perftool.store.catalog import no_table
    from perftool.store.sandbox.allowed import NO_LIST

    if error == NO_LIST:
        return "; query --tables lists the tables"
    unknown = re.fullmatch(r"there is no table '(.+)'", error)
    return no_table(unknown[1]).removeprefix(error) if unknown else ""


def _column_hint(error: str, sql: str) -> str:
    """Return a hint with the columns of the tables in ``sql`` if the ``error`` is about an unknown column."""
    from perftool.store.catalog import names_in, public_tables

    if "not found in FROM clause" not in error and "does not have a column named" not in error:
        return ""
    mentioned = set(names_in(sql))
    tables = [f"{table.name} ({', '.join(column.name for column in table.columns)})" for table in public_tables()
              if table.name in mentioned]  # fmt: skip
    return f"; the columns are {'; '.join(tables)}" if tables else ""


def _quote_hint(error: str) -> str:
    """Return a hint if the ``error`` is about the column ``end``, which must be quoted in SQL."""
    return '; write the column as "end", with the quotes' if 'at or near "end"' in error else ""


def _list_tables(output_file: str | None) -> None:
    """Print every public table with its columns."""
    from perftool.store.catalog import public_tables

    text = "\n".join(f"{table.name}: {table.description}\n{table.schema}\n" for table in public_tables())
    write_document(text.encode(), output_file)
    print_notes(written_note(output_file))


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
        raise PerfToolError(
            f"two columns are called {twice}, but the keys of a JSON object must be unique; rename one with AS"
        )
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    return orjson.dumps(cleaned(objects), option=orjson.OPT_APPEND_NEWLINE)


_RENDER = {Format.table: _as_table, Format.csv: _as_csv, Format.json: _as_json}
