"""The per-rank tables that the store of a part of the ranks exports, and that a merged store imports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb

from perftool.errors import LONGEST_REASON, InputError, is_interrupt
from perftool.store.catalog import catalog
from perftool.store.database import literal
from perftool.store.shift import Shift

# These tables are small: they have one row per step, collective or name, rather than one per slice.
EXPORTED = (
    "tracks", "windows", "steps", "collectives", "engines", "recipes", "_rank_totals", "_engine_totals",
    "_idle_totals", "_idle_annotations", "_idle_ops", "_device_op_totals", "_op_totals", "_traced_compilations",
    "fallback_calls", "run_kinds", "device_windows", "_rank_stretches", "_roofline_totals", "_efficiency_totals",
    "_efficiency_top", "_efficiency_ops", "_efficiency_peaks", "gain_limits", "_cpu_runs", "_overlapping_steps",
    "_set_aside", "_step_units", "_phase_totals", "chains", "modules", "serving_iterations", "_memory_uses",
    "_annotation_work", "_called_op_work", "_enclosing_calls", "repeated_passes", "_op_loops", "_gap_neighbours",
    "_apart_stretches",
)  # fmt: skip
# Tables whose numbers must not be NULL, because the report calculates with them.
_WITHOUT_NULL = ("steps", "_phase_totals", "_efficiency_ops")
# The limit for one table of one part. A large trace has about ten thousand collectives.
MOST_ROWS = 5_000_000
# How many rows and how many bytes of text a table may have per byte of its file, in addition to a fixed allowance.
# Parquet stores a repeated name only once, but each row of our tables takes at least a byte.
_ROWS_PER_BYTE, _FREE_ROWS = 16, 10_000
_TEXT_PER_BYTE, _FREE_TEXT = 200, 4 << 20
_TIMES = {"ts", "end", "host_ts", "host_end", "called", "ready"}
_RAW = re.compile(r"\braw\b")


@dataclass(frozen=True)
class ExportedTables:
    """Tables of the store of ``ranks``, exported as Parquet files. ``shift`` moves their times to the common origin.

    ``foreign``: whether they come from an untrusted file.
    """

    tables: Mapping[str, bytes]
    shift: Shift
    ranks: frozenset[int]
    foreign: bool = False


@contextmanager
def corrupt_as_input_error() -> Iterator[None]:
    """Turn DuckDB errors into InputErrors. They occur if tables are corrupt or too large, or contain absurd numbers."""
    try:
        yield
    except (duckdb.Error, UnicodeDecodeError) as error:
        # DuckDB's message may quote corrupt bytes, which raises UnicodeDecodeError.
        if is_interrupt(error):
            raise
        why = str(error).splitlines()[0][:LONGEST_REASON]
        if isinstance(error, duckdb.OutOfMemoryException):
            raise InputError(f"the tables of the parts need too much memory; merge fewer parts ({why})") from None
        raise InputError(f"the tables of a part are corrupt; export the part again ({why})") from None


@cache
def spans_ranks(name: str) -> bool:
    """Whether the table ``name`` is complete in a merged store. It is if it was imported, or if it is derived from
    complete tables without raw events."""
    if name in EXPORTED or name not in catalog():
        return True
    table = catalog()[name]
    return not _RAW.search(table.sql) and all(spans_ranks(need) for need in table.needs)


def write_tables(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, bytes]:
    """Export the tables of EXPORTED; return the bytes of each Parquet file, by table."""
    written = {}
    for name in EXPORTED:
        path = folder / f"{name}.parquet"
        connection.execute(f'COPY "{name}" TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd)')
        written[name] = path.read_bytes()
        path.unlink()
    return written


def read_tables(connection: duckdb.DuckDBPyConnection, parts: Sequence[ExportedTables], folder: Path) -> None:
    """Import each table of EXPORTED from all ``parts``.

    Raise duckdb.Error if a part has the wrong columns or types, or rows of ranks that it does not own. Also raise it
    if the tables of a foreign part lack numbers or are too large when unpacked.
    """
    connection.execute("CREATE TEMP TABLE owners (file VARCHAR, rank INTEGER, shift_ns BIGINT)")
    for name in EXPORTED:
        files = [str(folder / f"{name}-{number:06}.parquet") for number in range(len(parts))]
        for file, part in zip(files, parts, strict=True):
            Path(file).write_bytes(part.tables[name])
            if part.foreign:
                _require_size(connection, name, Path(file))
                _require_values(connection, name, Path(file))
        _name_owners(connection, files, parts)
        # Use the row order of a store that reads all ranks. File names sort in the order of the parts.
        connection.execute(
            f"""CREATE TABLE "{name}" AS SELECT {_columns(name)}
                FROM read_parquet({files}, filename = true, file_row_number = true) AS t
                LEFT JOIN owners AS o ON o.file = t.filename AND o.rank = t.rank
                ORDER BY t.rank, t.filename, t.file_row_number"""
        )
        for file in files:
            Path(file).unlink()
    connection.execute("DROP TABLE owners")


def _name_owners(connection: duckdb.DuckDBPyConnection, files: Sequence[str], parts: Sequence[ExportedTables]) -> None:
    """Fill the table ``owners`` with the ranks of each part and the shift (ns) of their times."""
    owned = [
        (file, rank, part.shift.ns if rank in part.shift.ranks else 0)
        for file, part in zip(files, parts, strict=True)
        for rank in sorted(part.ranks)
    ]
    columns = [list(column) for column in zip(*owned, strict=True)]
    connection.execute("DELETE FROM owners")
    connection.execute("INSERT INTO owners SELECT unnest($1), unnest($2), unnest($3)", columns)


def _require_size(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> None:
    """Raise duckdb.Error if the file at ``path`` unpacks to more than its size allows. Parquet stores a repeated value
    once, so a few bytes can become billions of rows.
    """
    size, file = path.stat().st_size, literal(str(path))
    most = min(MOST_ROWS, _ROWS_PER_BYTE * size + _FREE_ROWS)
    texts = [column.name for column in catalog()[name].columns if column.type == "VARCHAR"]
    lists = [column.name for column in catalog()[name].columns if column.type.endswith("[]")]
    lengths = [*(f'strlen("{text}"::VARCHAR)' for text in texts), *(f'8 * len("{one}")' for one in lists)]
    unpacked = f"SELECT coalesce(sum(total_uncompressed_size), 0) FROM parquet_metadata({file})"
    if connection.execute(unpacked).fetchall()[0][0] > _TEXT_PER_BYTE * size + _FREE_TEXT:
        raise duckdb.OutOfRangeException(f"{name} unpacks to more than its size allows")
    length = " + ".join(f"coalesce({one}, 0)" for one in lengths) or "0"
    counted = f"SELECT count(*) FROM (SELECT 1 FROM read_parquet({file}) LIMIT {most + 1})"
    if connection.execute(counted).fetchall()[0][0] > most:
        raise duckdb.OutOfRangeException(f"{name} has too many rows")
    # A LIMIT would copy each string. The members of lists are counted before the lists are unpacked.
    members = (f'(SELECT unnest("{one}") AS member FROM read_parquet({file}))' for one in lists)
    sums = [(length, f"read_parquet({file})"), *(("strlen(member::VARCHAR)", source) for source in members)]
    total = 0
    for summand, source in sums:
        total += connection.execute(f"SELECT coalesce(sum({summand}), 0) FROM {source}").fetchall()[0][0]
        if total > _TEXT_PER_BYTE * size + _FREE_TEXT:
            raise duckdb.OutOfRangeException(f"{name} repeats its texts too often")


def _require_values(connection: duckdb.DuckDBPyConnection, name: str, path: Path) -> None:
    """Raise duckdb.Error if the file at ``path`` lacks a number that the report needs for its calculations."""
    numbers = [column.name for column in catalog()[name].columns if column.type == "BIGINT"]
    if name not in _WITHOUT_NULL or not numbers:
        return
    lacking = " OR ".join(f'"{number}" IS NULL' for number in numbers)
    file = literal(str(path))
    if connection.execute(f"SELECT 1 FROM read_parquet({file}) WHERE {lacking} LIMIT 1").fetchall():
        raise duckdb.ConstraintException(f"{name} lacks numbers")


def _columns(name: str) -> str:
    own = (
        "CASE WHEN t.rank IS NULL OR o.rank IS NOT NULL THEN t.rank ELSE error('a row for a rank of another part') END"
    )
    replaced = {"rank": own} | {time: f't."{time}" + coalesce(o.shift_ns, 0)' for time in _TIMES}
    columns = [(one.name, one.type, replaced.get(one.name, f't."{one.name}"')) for one in catalog()[name].columns]
    return ", ".join(f'({value})::{kind} AS "{column}"' for column, kind, value in columns)
