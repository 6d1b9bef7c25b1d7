"""The table of what each op needs, from the formulas of ``perftool.op_costs``."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.op_costs.model import cost_of
from perftool.store.catalog import catalog


def model_ops(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Make the table ``_op_costs`` from the rows of ``_op_work``; an op without a model has no row. No issues."""
    connection.execute(f"CREATE TABLE {catalog()['_op_costs'].definition}")
    calls = connection.execute(
        "SELECT id, name, input_dims, input_types, concrete_inputs FROM _op_work WHERE input_dims IS NOT NULL"
    ).fetchall()
    costs = [(call[0], cost) for call in calls if (cost := cost_of(*call[1:]))]
    if costs:
        columns = [
            [call for call, _ in costs], [cost.flops for _, cost in costs], [cost.bytes for _, cost in costs],
            [cost.unit for _, cost in costs], [cost.dtype for _, cost in costs],
        ]  # fmt: skip
        marks = ", ".join(["unnest(?)"] * len(columns))
        connection.execute(f"INSERT INTO _op_costs SELECT {marks}", columns)
    return []
