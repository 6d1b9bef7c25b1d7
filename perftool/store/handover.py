"""The tables that a store over some ranks hands on, and that a store over all of them takes instead of making them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb

from perftool.errors import InputError, is_interrupt
from perftool.store.catalog import catalog
from perftool.store.shift import Shift

# Each row speaks of one rank, and there are few: per step, per collective, per name; never per slice.
HANDED_ON = (
    "tracks", "windows", "steps", "collectives", "engines", "recipes", "_rank_totals", "_engine_totals",
    "_idle_totals", "_device_op_totals", "_op_totals", "_traced_compilations", "fallback_calls", "run_kinds",
    "device_windows", "_rank_stretches", "_roofline_totals", "_efficiency_totals", "_efficiency_top",
    "_efficiency_peaks", "gain_limits",
)  # fmt: skip
# Of one table of one task; a large trace has some ten thousand collectives.
MOST_ROWS = 5_000_000
_LONGEST_REASON = 200
_TIMES = {"ts", "end", "host_ts", "host_end"}
_RAW = re.compile(r"\braw\b")


@dataclass(frozen=True)
class Handover:
    """The tables of one store over ``ranks`` as Parquet files; ``shift`` makes times count from the common zero."""

    tables: Mapping[str, bytes]
    shift: Shift
    ranks: frozenset[int]


@contextmanager
def sound_tables() -> Iterator[None]:
    """Turns what DuckDB says of tables that no task hands on, or of the numbers in them, into InputError."""
    try:
        yield
    except duckdb.Error as error:
        if is_interrupt(error):
            raise
        why = str(error).splitlines()[0][:_LONGEST_REASON]
        raise InputError(f"the tables of a part are damaged; make it again ({why})") from None


@cache
def spans_ranks(name: str) -> bool:
    """Whether the table ``name`` is complete in a store over many ranks: handed on, or made without raw events."""
    if name in HANDED_ON or name not in catalog():
        return True
    table = catalog()[name]
    return not _RAW.search(table.sql) and all(spans_ranks(need) for need in table.needs)


def write_tables(connection: duckdb.DuckDBPyConnection, folder: Path) -> dict[str, bytes]:
    """Every table of HANDED_ON as the bytes of a Parquet file."""
    written = {}
    for name in HANDED_ON:
        path = folder / f"{name}.parquet"
        connection.execute(f"COPY \"{name}\" TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        written[name] = path.read_bytes()
        path.unlink()
    return written


def read_tables(connection: duckdb.DuckDBPyConnection, parts: Sequence[Handover], folder: Path) -> None:
    """Make each table of HANDED_ON from the rows of all ``parts``, one behind the other.

    Parts may come from anywhere. Raises duckdb.Error for one with other columns or types, with rows of ranks that are
    not its own, or with more rows than any rank has.
    """
    for name in HANDED_ON:
        columns = ", ".join(f'"{column.name}" {column.type}' for column in catalog()[name].columns)
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        for number, part in enumerate(parts):
            path = folder / f"{name}-{number}.parquet"
            path.write_bytes(part.tables[name])
            rows = f"(SELECT * FROM read_parquet('{path}') LIMIT {MOST_ROWS + 1})"
            added = connection.execute(f'INSERT INTO "{name}" SELECT {_columns(name, part)} FROM {rows}').fetchall()
            path.unlink()
            if added[0][0] > MOST_ROWS:
                raise duckdb.OutOfRangeException(f"{name} has too many rows")


def _columns(name: str, part: Handover) -> str:
    ranks = ", ".join(map(str, sorted(part.ranks)))
    own = f"CASE WHEN (rank IN ({ranks})) IS NOT false THEN rank ELSE error('a row of a rank of another part') END"
    told = {"rank": own}
    if part.shift:
        told |= {time: part.shift.sql(time) for time in _TIMES}
    return ", ".join(told.get(column.name, f'"{column.name}"') for column in catalog()[name].columns)
