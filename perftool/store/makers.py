"""Who makes the tables that SQL cannot derive; the header of such a table names its maker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.store.catalog import Table
from perftool.store.clocks import align_clocks
from perftool.store.derive import nest_slices, pair_slices, sweep_timeline
from perftool.store.op_costs import model_ops

# Makes its table from those it needs; returns what came to light, each with its rank.
Maker = Callable[[duckdb.DuckDBPyConnection], Iterable[tuple[int, ImportIssue]]]
MAKERS: dict[str, Maker] = {
    "pair_slices": pair_slices, "nest_slices": nest_slices, "sweep_timeline": sweep_timeline,
    "align_clocks": align_clocks, "model_ops": model_ops,
}  # fmt: skip
# The tables with this maker are filled with the rows of ``given_tables``.
GIVEN = "given"
# Lives on a floor above; whoever makes a store hands it in. Without it its tables are empty.
REPLAY = "replay"


def fill(connection: duckdb.DuckDBPyConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Make ``table`` from ``rows``."""
    connection.execute(f"CREATE TABLE {table.definition}")
    if rows:
        # Column by column is twenty times faster than row by row.
        columns = [list(column) for column in zip(*rows, strict=True)]
        marks = ", ".join(["unnest(?)"] * len(columns))
        connection.execute(f'INSERT INTO "{table.name}" SELECT {marks}', columns)
