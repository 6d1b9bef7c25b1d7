"""Stores event names and categories as numbers: a recording has millions of events, and few names.

DuckDB calls such a type ENUM. Its values are sorted, so rows sort as they would by text, and comparisons with other
columns use the text. Queries from outside see text (``Table.as_text``).
"""

from __future__ import annotations

import duckdb

from perftool.model import vendors

# As many as fit two bytes. With more names an ENUM gains little: its values stay in memory, outside of any limit.
_MOST_VALUES = 65_535
# DuckDB writes the whole type each time that it copies a plan: a dictionary of 18 MB took 12 s.
_MOST_BYTES = 1 << 20
# Categories that the tables assign, besides those of the vendor files.
_KINDS = ("", "collective", "kernel", "memcpy", "memset", "runtime", "wait")
_NAMES = "SELECT DISTINCT name AS value FROM raw WHERE name IS NOT NULL"
_CATEGORIES = "SELECT lower(cat) AS value FROM (SELECT DISTINCT cat FROM raw WHERE cat IS NOT NULL)"


def create_dictionaries(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the types event_name, event_category and event_side once all events are in ``raw``."""
    names = (name for vendor in vendors.vendors(vendors.FOLDER) for name in vendor.names)
    kinds = {name.role for name in names if name.subject in ("category", "event")}
    known = ", ".join(f"('{kind}')" for kind in sorted(kinds.union(_KINDS)))
    _create(connection, "event_name", _NAMES)
    _create(connection, "event_category", f"{_CATEGORIES} UNION SELECT * FROM (VALUES {known})")
    connection.execute("CREATE TYPE event_side AS ENUM ('device', 'host')")


def _create(connection: duckdb.DuckDBPyConnection, name: str, values: str) -> None:
    connection.execute(f"CREATE TEMP TABLE _values AS SELECT value FROM ({values}) LIMIT {_MOST_VALUES + 1}")
    ((count, size),) = connection.execute("SELECT count(*), coalesce(sum(strlen(value)), 0) FROM _values").fetchall()
    few = 0 < count <= _MOST_VALUES and size <= _MOST_BYTES
    connection.execute(f"CREATE TYPE {name} AS {'ENUM (FROM _values ORDER BY value)' if few else 'VARCHAR'}")
    connection.execute("DROP TABLE _values")
