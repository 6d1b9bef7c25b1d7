"""Exports the public tables of a store for other tools: as a DuckDB database, Parquet files, or a workbook."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from perftool.errors import PerfToolError
from perftool.store.catalog import Table
from perftool.store.database import literal
from perftool.units import quantity

# The maximum number of rows that Excel can open, not counting the header.
_SHEET_ROWS = 1_048_575
_LONGEST_CELL = 32_767
_ROWS_AT_A_TIME = 10_000
# Widths of the columns of the first sheet, in characters.
_NAME_WIDTH, _TEXT_WIDTH = 24, 120
# Excel keeps 15 digits of a number, so longer numbers are written as text.
_EXACT = 10**15

Writer = Callable[[duckdb.DuckDBPyConnection, Sequence[Table], Path], list[str]]
"""Writes tables, which must already exist, to a path. Returns a sentence for everything that did not fit."""


def write_duckdb(connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], place: Path) -> list[str]:
    """Write a DuckDB database that documents its tables and columns in comments."""
    connection.execute(f"ATTACH {literal(str(place))} AS exported")
    try:
        for table in tables:
            connection.execute(f"CREATE TABLE exported.{table.definition}")
            connection.execute(f'INSERT INTO exported."{table.name}" {table.as_text}')
            connection.execute(f'COMMENT ON TABLE exported."{table.name}" IS {literal(table.description)}')
            for column in table.columns:
                name = f'exported."{table.name}"."{column.name}"'
                connection.execute(f"COMMENT ON COLUMN {name} IS {literal(column.meaning)}")
        # Without a checkpoint, the rows would stay in a write-ahead log next to the file.
        connection.execute("CHECKPOINT exported")
    finally:
        connection.execute("DETACH exported")
    return []


def write_parquet(connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], place: Path) -> list[str]:
    """Write a folder with one Parquet file per table. The metadata of each file documents the table and its columns."""
    place.mkdir()
    for table in tables:
        texts = {"table": table.description, **{column.name: column.meaning for column in table.columns}}
        metadata = ", ".join(f'"{name}": {literal(text)}' for name, text in texts.items())
        connection.execute(
            f"COPY ({table.as_text}) TO {literal(str(place / f'{table.name}.parquet'))} "
            f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{metadata}}})"
        )
    return []


def write_workbook(connection: duckdb.DuckDBPyConnection, tables: Sequence[Table], place: Path) -> list[str]:
    """Write an Excel workbook with one sheet per table that is not empty, and a first sheet that documents all tables.
    Text that looks like a formula or a link stays text.
    """
    try:
        xlsxwriter = importlib.import_module("xlsxwriter")
    except ImportError:
        raise PerfToolError("a workbook needs XlsxWriter: pip install 'habana-perf-tool[excel]'") from None
    cut = []
    with xlsxwriter.Workbook(str(place), {"constant_memory": True, "tmpdir": str(place.parent)}) as book:
        _document(book.add_worksheet("tables"), tables)
        for table in tables:
            found = connection.execute(f'SELECT count(*) FROM main."{table.name}"').fetchone()
            rows = found[0] if found else 0
            if rows:
                shortened = _fill(book.add_worksheet(table.name[:31]), table, _rows(connection, table))
                if shortened:
                    cut.append(
                        f"{table.name}: {quantity(shortened, 'text was', 'texts were')} truncated to the "
                        f"{_LONGEST_CELL:,} characters that a cell holds"
                    )
            if rows > _SHEET_ROWS:
                cut.append(
                    f"{table.name}: {quantity(rows - _SHEET_ROWS, 'row was', 'rows were')} left out, "
                    f"because a sheet holds at most {_SHEET_ROWS:,}"
                )
    return cut


def _document(sheet: Any, tables: Sequence[Table]) -> None:
    lines = [("table", "column", "type", "meaning")]
    for table in tables:
        lines.append((table.name, "", "", table.description))
        lines += [(table.name, column.name, column.type, column.meaning) for column in table.columns]
    sheet.freeze_panes(1, 0)
    sheet.set_column(0, 1, _NAME_WIDTH)
    sheet.set_column(3, 3, _TEXT_WIDTH)
    for at, line in enumerate(lines):
        for across, text in enumerate(line):
            sheet.write_string(at, across, text[:_LONGEST_CELL])


def _fill(sheet: Any, table: Table, rows: Iterator[tuple[Any, ...]]) -> int:
    """Write a header and the rows, and return the number of cells whose text was truncated."""
    cut = 0
    sheet.freeze_panes(1, 0)
    for across, column in enumerate(table.columns):
        sheet.write_string(0, across, column.name)
    for at, row in enumerate(rows, 1):
        for across, value in enumerate(row):
            if value is None:
                continue
            if isinstance(value, bool):
                sheet.write_boolean(at, across, value)
            elif isinstance(value, (int, float)) and abs(value) < _EXACT:
                sheet.write_number(at, across, value)
            else:
                text = str(value)
                sheet.write_string(at, across, text[:_LONGEST_CELL])
                cut += len(text) > _LONGEST_CELL
    return cut


def _rows(connection: duckdb.DuckDBPyConnection, table: Table) -> Iterator[tuple[Any, ...]]:
    result = connection.execute(f"{table.as_text} LIMIT {_SHEET_ROWS}")
    while rows := result.fetchmany(_ROWS_AT_A_TIME):
        yield from rows


WRITERS: Mapping[str, Writer] = {".duckdb": write_duckdb, ".parquet": write_parquet, ".xlsx": write_workbook}
"""The writer for each suffix of an output path; ``.parquet`` stands for a folder of Parquet files."""
