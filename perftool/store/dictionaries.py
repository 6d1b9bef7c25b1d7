"""Stores event names and categories as numbers (DuckDB's ENUM types), because a recording has millions of events but
few names. The values are sorted, so rows sort as their text would. Users' queries see text (``Table.as_text``).

If there are too many names for an ENUM, or they are too long, each row stores its own copy. To save memory, the middle
of long names is then removed, because the names of template kernels often differ only at the end.
"""

from __future__ import annotations

import duckdb

from perftool.model import vendors

# The maximum number of values for two-byte numbers. The values of an ENUM stay in memory, outside DuckDB's memory
# limit.
_MOST_VALUES = 65_535
# DuckDB copies the whole type for each query plan, which took 12 s for a type of 18 MB.
_MOST_BYTES = 1 << 20
# The limit for each name, in bytes, if there is no dictionary.
_LONGEST_TEXT = 1 << 10
# Categories that the tables assign, in addition to those in the vendor files.
_KINDS = ("", "collective", "kernel", "memcpy", "memset", "runtime", "wait")
_NAMES = "SELECT DISTINCT name AS value FROM raw WHERE name IS NOT NULL"
_CATEGORIES = "SELECT lower(cat) AS value FROM (SELECT DISTINCT cat FROM raw WHERE cat IS NOT NULL)"


def create_dictionaries(connection: duckdb.DuckDBPyConnection) -> int | None:
    """Create the types event_name, event_category and event_side once all events are in ``raw``.

    Return the limit to which names were shortened, in bytes, or None if a dictionary contains all names.
    """
    names = (name for vendor in vendors.vendors(vendors.FOLDER) for name in vendor.names)
    kinds = {name.role for name in names if name.subject in ("category", "event")}
    known = ", ".join(f"('{kind}')" for kind in sorted(kinds.union(_KINDS)))
    longest = None if _fits(connection, _NAMES) else _LONGEST_TEXT
    if longest:
        half = longest // 2
        cut = f"left(name, {half}) || '…' || right(name, {half})"
        connection.execute(f"UPDATE raw SET name = {cut} WHERE strlen(name) > {longest}")
    _create(connection, "event_name", _NAMES)
    _create(connection, "event_category", f"{_CATEGORIES} UNION SELECT * FROM (VALUES {known})")
    connection.execute("CREATE TYPE event_side AS ENUM ('device', 'host')")
    return longest


def _fits(connection: duckdb.DuckDBPyConnection, values: str) -> bool:
    """Whether ``values`` fit in a dictionary."""
    few = f"SELECT value FROM ({values}) LIMIT {_MOST_VALUES + 1}"
    found = connection.execute(f"SELECT count(*), coalesce(sum(strlen(value)), 0) FROM ({few})").fetchall()
    ((count, size),) = found
    return bool(count <= _MOST_VALUES and size <= _MOST_BYTES)


def _create(connection: duckdb.DuckDBPyConnection, name: str, values: str) -> None:
    connection.execute(f"CREATE TEMP TABLE _values AS SELECT value FROM ({values}) LIMIT {_MOST_VALUES + 1}")
    ((some,),) = connection.execute("SELECT count(*) > 0 FROM _values").fetchall()
    few = some and _fits(connection, "FROM _values")
    connection.execute(f"CREATE TYPE {name} AS {'ENUM (FROM _values ORDER BY value)' if few else 'VARCHAR'}")
    connection.execute("DROP TABLE _values")
