"""The tables that a store over some ranks hands on, and that a store over all of them takes instead of making them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb

from perftool.store.catalog import catalog
from perftool.store.shift import Shift

# Each row speaks of one rank, and there are few: per step, per collective, per name; never per slice.
HANDED_ON = (
    "tracks", "windows", "steps", "collectives", "engines", "recipes", "_rank_totals", "_engine_totals",
    "_idle_totals", "_device_op_totals", "_op_totals", "_traced_compilations", "fallback_calls", "run_kinds",
    "device_windows", "_rank_stretches", "_roofline_totals", "_efficiency_totals", "_efficiency_top",
    "_efficiency_peaks", "gain_limits",
)  # fmt: skip
_TIMES = {"ts", "end", "host_ts", "host_end"}
_RAW = re.compile(r"\braw\b")


@dataclass(frozen=True)
class Handover:
    """The tables of one store as Parquet files; ``shift`` is what makes their times count from the common zero."""

    tables: Mapping[str, bytes]
    shift: Shift


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
    """Make each table of HANDED_ON from the rows of all ``parts``, one behind the other."""
    for name in HANDED_ON:
        for number, part in enumerate(parts):
            path = folder / f"{name}-{number}.parquet"
            path.write_bytes(part.tables[name])
            rows = f"SELECT {_shifted(name, part.shift)} FROM read_parquet('{path}')"
            connection.execute(f'INSERT INTO "{name}" {rows}' if number else f'CREATE TABLE "{name}" AS {rows}')
            path.unlink()


def _shifted(name: str, shift: Shift) -> str:
    times = [column.name for column in catalog()[name].columns if column.name in _TIMES]
    if not shift or not times:
        return "*"
    return "* REPLACE (" + ", ".join(f'{shift.sql(time)} AS "{time}"' for time in times) + ")"
