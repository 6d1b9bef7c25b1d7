"""Checks whether SQL may run in the sandbox: it must be one SELECT over the exported tables that only computes.

DuckDB parses the statement, and this module checks the tree. A function is allowed if DuckDB lists it as free of side
effects and it is not refused here. A table function is allowed if it is listed here or is one of our macros.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

# DuckDB renamed this enum member in 2.0.
_SELECTS = ("SELECT", "SELECT_STATEMENT")
ONLY_SELECT = "only a single SELECT is allowed"
NO_LIST = "SHOW is not allowed"
# Table functions that use only their arguments. The others read files, settings or logs, or have side effects.
TABLE_FUNCTIONS = frozenset(
    ("range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row",
     "histogram", "histogram_values")
)  # fmt: skip
# Harmless functions that DuckDB lists as volatile.
_HARMLESS = frozenset(("random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "error", "stats", "vector_type"))
# Functions that reveal details of the process or its environment, wait, write, or accept SQL or plans as text.
_REFUSED = re.compile(
    r"(pg|inet|txid|icu_calendar|duckdb|parse_duckdb|enable|disable|write|read)_.*|getvariable|getenv|current_.*"
    r"|(next|curr|set)val|.*sleep.*|setseed|version|json_(de|execute_)?serialize.*|json_execute.*|.*secret.*|.*_privilege"
    r"|in_search_path|session_user|user|__internal_.*|invoke|query(_table)?|getvariable|add_parquet_key|.*_log|.*_logs"
)
_TIMES = frozenset(("current_date", "current_localtime", "current_localtimestamp", "current_timestamp"))
# DuckDB ignores the case of these letters only; str.lower would also turn the Kelvin sign into a k.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# The nodes of a query that only reads. Other nodes in a common table expression, such as COPY_QUERY_NODE, would write.
_READING = frozenset(("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"))
_KINDS = "('scalar', 'aggregate', 'window', 'macro')"


class RefusedError(Exception):
    """The SQL was refused; the message says why."""


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: Collection[str]) -> None:
    """Raise RefusedError unless ``sql`` is one SELECT over ``tables`` that only computes."""
    import duckdb

    try:
        found = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise RefusedError(first_line(error)) from None
    if len(found) != 1 or found[0].type.name not in _SELECTS:
        raise RefusedError(ONLY_SELECT)
    text = connection.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchall()[0][0]
    tree = json.loads(text)
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        raise RefusedError(ONLY_SELECT)
    nodes = list(_nodes(tree))
    types = {str(node.get("type")) for node in nodes}
    if any(name.endswith("_NODE") for name in types - _READING):
        raise RefusedError(ONLY_SELECT)
    # SHOW would be useless, because the sandbox contains only the tables that statements use.
    if any(node.get("show_type") == "SHOW_SPECIAL" for node in nodes):
        raise RefusedError(NO_LIST)
    _check_functions(connection, nodes)
    _check_tables(tree, {table.translate(_LOWER) for table in tables})


def first_line(error: BaseException) -> str:
    """Return the first line of the message of ``error``."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check_functions(connection: duckdb.DuckDBPyConnection, nodes: list[dict[str, Any]]) -> None:
    computing = _computing(connection)
    sources = [node.get("function") or {} for node in nodes if node.get("type") == "TABLE_FUNCTION"]
    own = _own_table_macros(connection)
    for source in sources:
        name = str(source.get("function_name", "")).lower()
        if name not in TABLE_FUNCTIONS and name not in own:
            raise RefusedError(f"the table function {name} is not allowed")
    known_sources = {id(source) for source in sources}
    for node in nodes:
        if "function_name" in node and id(node) not in known_sources:
            name = str(node["function_name"]).lower()
            if name not in computing:
                raise RefusedError(f"the function {name} does not exist or is not allowed")
            if node.get("catalog") or node.get("schema") not in ("", "main", None):
                raise RefusedError(f"the function {name} may not be called with a schema")


@dataclass(frozen=True)
class _Scope:
    """The common table expressions that a part of a statement may use: the first ``most`` of ``places``, and those of
    the enclosing scope ``around``.
    """

    places: Mapping[str, int]
    most: int
    around: _Scope | None

    def has(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if scope.places.get(name, scope.most) < scope.most:
                return True
            scope = scope.around
        return False


_NO_SCOPE = _Scope({}, 0, None)


def _check_tables(tree: Any, tables: Collection[str]) -> None:
    """Raise RefusedError unless each table is one of ``tables``, or a common table expression that is in scope.

    DuckDB would resolve a name that is out of scope to one of its own relations. This function is not recursive,
    because untrusted SQL determines the depth.
    """
    waiting: list[tuple[Any, _Scope]] = [(tree, _NO_SCOPE)]
    while waiting:
        node, scope = waiting.pop()
        if isinstance(node, list):
            waiting.extend((part, scope) for part in node)
        elif isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                _check_table(node, tables, scope)
            waiting.extend(_parts(node, scope))


def _check_table(node: dict[str, Any], tables: Collection[str], scope: _Scope) -> None:
    name, schema = str(node.get("table_name", "")), str(node.get("schema_name") or "")
    plain = name.translate(_LOWER)
    known = (plain in tables and schema in ("", "main")) or (not schema and scope.has(plain))
    if node.get("catalog_name") or not known:
        raise RefusedError(f"there is no table {'.'.join(filter(None, (schema, name)))!r}")


def _parts(node: dict[str, Any], scope: _Scope) -> Iterator[tuple[Any, _Scope]]:
    """Yield the parts of ``node``, each with its scope. A common table expression may use those before it. Only the
    recursive part of a recursive expression may use the expression itself.
    """
    entries = (node.get("cte_map") or {}).get("map", ())
    places = {entry["key"].translate(_LOWER): place for place, entry in enumerate(entries)}
    for place, entry in enumerate(entries):
        yield entry, _Scope(places, place, scope)
    inside = _Scope(places, len(places), scope) if places else scope
    own = str(node.get("cte_name") or "").translate(_LOWER)
    # Before 1.4, DuckDB represents a materialised expression as a node whose child is the rest of the statement.
    within = {"RECURSIVE_CTE_NODE": "right", "CTE_NODE": "child"}.get(node.get("type", "")) if own else None
    for key, part in node.items():
        if key != "cte_map":
            yield part, _Scope({own: 0}, 1, inside) if key == within else inside


@cache
def _computing(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the functions that only compute a value from their arguments."""
    rows = connection.execute(
        f"SELECT DISTINCT lower(function_name), coalesce(has_side_effects, false) FROM duckdb_functions() "
        f"WHERE function_type IN {_KINDS}"
    ).fetchall()
    acting = {name for name, acts in rows if acts} - _HARMLESS
    names = {name for name, _ in rows if not _REFUSED.fullmatch(name)}
    # The parser uses the names unnest and count_star for syntax.
    return frozenset((names - acting) | _TIMES | _HARMLESS | {"unnest", "count_star"})


@cache
def _own_table_macros(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    rows = connection.execute(
        "SELECT lower(function_name) FROM duckdb_functions() WHERE function_type = 'table_macro' AND NOT internal"
    ).fetchall()
    return frozenset(name for (name,) in rows)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in ``tree``. This function is not recursive, because untrusted SQL determines the depth."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
