"""Makers of tables that SQL cannot derive. The header of such a table names its maker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.store.allocation_places import place_allocations
from perftool.store.catalog import Table
from perftool.store.chains import find_chains
from perftool.store.clocks import align_clocks
from perftool.store.derive import nest_slices, pair_slices, sweep_timeline
from perftool.store.op_costs import model_ops
from perftool.store.shortfalls import judge_ops

# A function that creates a table from the tables that it needs, and returns (rank, issue) pairs.
Maker = Callable[[duckdb.DuckDBPyConnection], Iterable[tuple[int, ImportIssue]]]
MAKERS: dict[str, Maker] = {
    "pair_slices": pair_slices, "nest_slices": nest_slices, "sweep_timeline": sweep_timeline,
    "align_clocks": align_clocks, "model_ops": model_ops, "judge_ops": judge_ops,
    "find_chains": find_chains, "place_allocations": place_allocations,
}  # fmt: skip
# The rows of tables with this maker come from ``source_tables``.
GIVEN = "given"
# The rows of tables with this maker come from a function passed to the store. If none is passed, the tables are empty.
REPLAY = "replay"
# Rows per INSERT. DuckDB keeps several copies of each parameter, of a hundred bytes or more each.
_MOST_ROWS = 5_000


def fill(connection: duckdb.DuckDBPyConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Create ``table`` from ``rows``."""
    connection.execute(f"CREATE TABLE {table.definition}")
    for first in range(0, len(rows), _MOST_ROWS):
        # Inserting columns is twenty times faster than inserting rows.
        columns = [list(column) for column in zip(*rows[first : first + _MOST_ROWS], strict=True)]
        marks = ", ".join(["unnest(?)"] * len(columns))
        connection.execute(f'INSERT INTO "{table.name}" SELECT {marks}', columns)
