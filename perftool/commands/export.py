"""``export``: writes the tables for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perftool.commands.options import CliSettings
from perftool.commands.output import written_note
from perftool.commands.session import Session, open_run
from perftool.errors import PerfToolError
from perftool.output_file import whole_file, whole_folder, write_errors_named


def export(
    cli: CliSettings,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A trace, a folder, a glob, or '-'.")],
    target: Annotated[
        str,
        typer.Option(
            "--output-file",
            "-o",
            metavar="PLACE",
            help="Write here: NAME.duckdb, NAME.xlsx, or NAME/ for Parquet files.",
        ),
    ],
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Write only this table; repeatable. The default is all.")
    ] = None,
) -> None:
    """Write the tables for DuckDB, pandas, polars or a spreadsheet

    Writes a DuckDB database, a folder of Parquet files, or an Excel workbook (needs the extra excel), with descriptions
    of the tables and columns. habana_perf_tool cannot read them back.

    Examples:

      habana_perf_tool export run.json -o run.duckdb

      habana_perf_tool export run.json -o run_parquet/

      habana_perf_tool export run.json -o run.xlsx --table steps --table gaps
    """
    from perftool.store.catalog import no_table, public_tables
    from perftool.store.export import WRITERS

    public_names = [one.name for one in public_tables()]
    if unknown := next((name for name in table or () if name not in public_names), None):
        raise PerfToolError(no_table(unknown))
    suffix = ".parquet" if target.endswith("/") else Path(target).suffix
    if suffix not in WRITERS or (suffix == ".parquet" and not target.endswith("/")):
        raise PerfToolError(f"{target}: expected a name that ends in .duckdb, .xlsx, or / (a folder)")
    place = Path(target)
    if suffix != ".parquet" and not place.parent.is_dir():
        raise PerfToolError(f"{target}: cannot write (there is no folder {place.parent})")
    # A name may be given twice.
    tables = list(dict.fromkeys(table or public_names))
    session = Session(cli, [path])
    whole = whole_folder if suffix == ".parquet" else whole_file
    with (
        open_run(session, session.inputs([path], [target]), rules=()) as opened,
        write_errors_named(target),
        whole(place) as made,
    ):
        left_out = opened.whole.export(tables, WRITERS[suffix], made)
    session.note([*left_out, *written_note(target)])
