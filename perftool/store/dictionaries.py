"""Names and categories of events as numbers: a recording has millions of events, and few names.

DuckDB calls such a type ENUM. Its values are sorted, so that rows come in the same order as by the text, and what it
meets is compared as text. Whoever asks from outside sees text (``Table.as_text``).
"""

from __future__ import annotations

import duckdb

from perftool.model import vendors

# So many fit two bytes. A recording with more gains little: each value is kept in memory, outside of any limit.
_MOST_VALUES = 65_535
# What the tables call events, besides what the files of vendors do.
_KINDS = ("", "collective", "kernel", "memcpy", "memset", "runtime", "wait")
_NAMES = "SELECT DISTINCT name AS value FROM raw WHERE name IS NOT NULL"
_CATEGORIES = "SELECT lower(cat) AS value FROM (SELECT DISTINCT cat FROM raw WHERE cat IS NOT NULL)"


def create_dictionaries(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the types event_name, event_category and event_side for the events in ``raw``, once all are there."""
    names = (name for vendor in vendors.vendors(vendors.FOLDER) for name in vendor.names)
    kinds = {name.role for name in names if name.subject in ("category", "event")}
    known = ", ".join(f"('{kind}')" for kind in sorted(kinds.union(_KINDS)))
    _create(connection, "event_name", _NAMES)
    _create(connection, "event_category", f"{_CATEGORIES} UNION SELECT * FROM (VALUES {known})")
    connection.execute("CREATE TYPE event_side AS ENUM ('device', 'host')")


def _create(connection: duckdb.DuckDBPyConnection, name: str, values: str) -> None:
    made = connection.execute(f"CREATE TEMP TABLE _values AS SELECT value FROM ({values}) LIMIT {_MOST_VALUES + 1}")
    few = 0 < made.fetchall()[0][0] <= _MOST_VALUES
    connection.execute(f"CREATE TYPE {name} AS {'ENUM (FROM _values ORDER BY value)' if few else 'VARCHAR'}")
    connection.execute("DROP TABLE _values")
