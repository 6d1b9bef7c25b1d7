"""How a DuckDB database is opened, wherever that is."""

from __future__ import annotations

import duckdb

# Nobody else reads the file. Older forms, which some versions write by default, know less about compression.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {"storage_compatibility_version": "latest"}
# Before 2.0 this one fails on some of our tables: "expression type mismatch".
_BROKEN_BEFORE_2 = "top_n_window_elimination"


def open_database(path: str) -> duckdb.DuckDBPyConnection:
    """The database at ``path``, or one in memory for ``:memory:``."""
    old = int(duckdb.__version__.split(".")[0]) < 2
    return duckdb.connect(path, config=_CONFIG | ({"disabled_optimizers": _BROKEN_BEFORE_2} if old else {}))
