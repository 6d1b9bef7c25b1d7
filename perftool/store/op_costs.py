"""Creates the table of op costs with the formulas of ``perftool.op_costs``."""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb

from perftool.model.inputs import ImportIssue
from perftool.op_costs.call import NoModelError, shape_of
from perftool.op_costs.convolutions import WHOLE
from perftool.op_costs.model import cost_of
from perftool.op_costs.seen import Results, results
from perftool.store.catalog import catalog


def model_ops(connection: duckdb.DuckDBPyConnection) -> Sequence[tuple[int, ImportIssue]]:
    """Create the table ``_op_costs`` from ``_op_work``; ops without a model have no row. Return no issues."""
    connection.execute(f"CREATE TABLE {catalog()['_op_costs'].definition}")
    calls = connection.execute(
        """SELECT id, name, input_dims, input_types, concrete_inputs, element_bytes, outer_dims,
                  around, grids
           FROM _op_work WHERE input_dims IS NOT NULL"""
    ).fetchall()
    seen = _seen(connection)
    # Compute each distinct call once, because steps and ranks repeat the same calls.
    known = {
        call: cost_of(call[0], call[1], call[2], call[3], call[4], call[5], seen, call[6], call[7])
        for call in {tuple(call) for _, *call in calls}
    }
    costs = [(row, cost) for row, *call in calls if (cost := known[tuple(call)])]
    if costs:
        columns = [
            [call for call, _ in costs], [cost.flops for _, cost in costs], [cost.bytes for _, cost in costs],
            [cost.unit for _, cost in costs], [cost.dtype for _, cost in costs],
        ]  # fmt: skip
        marks = ", ".join(["unnest(?)"] * len(columns))
        connection.execute(f"INSERT INTO _op_costs SELECT {marks}", columns)
    return []


def _seen(connection: duckdb.DuckDBPyConnection) -> Results:
    """Return the result shapes of the convolutions in the recording, taken from the ops that compute their
    gradients.
    """
    rows = connection.execute(
        "SELECT DISTINCT name, input_dims FROM ops WHERE name IN (SELECT unnest(?)) AND input_dims IS NOT NULL",
        [list(WHOLE)],
    ).fetchall()
    found = []
    for name, text in rows:
        try:
            dims = json.loads(text)
            x, weight, result = (shape_of(dims[at]) for at in WHOLE[name])
        except (ValueError, IndexError, TypeError, RecursionError, NoModelError):
            continue
        found.append((x, weight, result))
    return results(found)
