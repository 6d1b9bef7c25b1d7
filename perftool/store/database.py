"""Opens DuckDB databases and turns results into rows."""

from __future__ import annotations

from typing import Any

import duckdb

# The newest storage format compresses best, and only this program reads the file.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {"storage_compatibility_version": "latest"}
# Before DuckDB 2.0, this optimizer fails on some of our tables ("expression type mismatch").
_BROKEN_BEFORE_2 = "top_n_window_elimination"
_PARSED: dict[str, list[duckdb.Statement]] = {}


def open_database(path: str) -> duckdb.DuckDBPyConnection:
    """Open the database at ``path``, or create a database in memory if ``path`` is ``:memory:``."""
    old = int(duckdb.__version__.split(".")[0]) < 2
    return duckdb.connect(path, config=_CONFIG | ({"disabled_optimizers": _BROKEN_BEFORE_2} if old else {}))


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> list[duckdb.Statement]:
    """Parse ``sql`` into statements, once per process. Use this only for SQL that this program ships, because the
    cache is unbounded.
    """
    if sql not in _PARSED:
        _PARSED[sql] = connection.extract_statements(sql)
    return _PARSED[sql]


def literal(text: str) -> str:
    """Return ``text`` as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def as_dicts(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of ``result``, each keyed by column name."""
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
