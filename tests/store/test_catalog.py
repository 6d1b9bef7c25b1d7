"""The headers of tables agree with their SQL and with the code that builds them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from each import of_each
from events import begin, end, kernel, step, x
from stores import store_over

from perftool.store.catalog import Table, catalog, macros
from perftool.store.dictionaries import create_dictionaries
from perftool.store.load import CREATE_RAW
from perftool.store.makers import GIVEN, MAKERS, REPLAY
from perftool.store.source_tables import source_tables

RAW = "raw"
every_query = of_each({name: table for name, table in catalog().items() if table.maker is None})


@pytest.fixture(scope="module")
def empty() -> duckdb.DuckDBPyConnection:
    """A database with every table as its header declares it, without rows."""
    connection = duckdb.connect()
    connection.execute(CREATE_RAW + ";" + macros())
    create_dictionaries(connection)
    for table in catalog().values():
        connection.execute(f"CREATE TABLE {table.definition}")
    return connection


@every_query
def test_a_header_names_exactly_the_tables_that_the_sql_uses(table: Table, empty: duckdb.DuckDBPyConnection) -> None:
    tree = json.loads(empty.execute("SELECT json_serialize_sql($sql)", {"sql": table.sql}).fetchall()[0][0])
    nodes = list(nodes_of(tree))
    named = {node["table_name"] for node in nodes if node.get("type") == "BASE_TABLE"}
    # The interval macros take the name of a table as their argument.
    called = re.findall(r"interval_\w+\((\w+)(?:, (\w+))?\)", table.sql)
    named |= {argument for arguments in called for argument in arguments if argument}
    parts = {entry["key"] for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    # input_issues reads the issues that are recorded while _pairs is built.
    unseen = {"_pairs"} if table.name == "input_issues" else set()

    assert set(table.needs) == named - parts - {RAW} | unseen


def nodes_of(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes_of(child)


@every_query
def test_a_header_names_exactly_the_columns_of_the_sql(table: Table, empty: duckdb.DuckDBPyConnection) -> None:
    found = empty.execute(f"DESCRIBE {table.sql}").fetchall()

    assert [row[0] for row in found] == [column.name for column in table.columns]


def test_each_table_without_sql_has_a_maker() -> None:
    makers = {name: table.maker for name, table in catalog().items() if not table.sql.strip()}

    assert {name for name, maker in makers.items() if maker not in (GIVEN, REPLAY, *MAKERS)} == set()
    assert set(MAKERS) <= set(makers.values())
    assert {name for name, maker in makers.items() if maker == GIVEN} == set(source_tables([], [], {}, []))
    assert [name for name, table in catalog().items() if table.maker and table.sql.strip()] == []


def test_internal_tables_with_a_maker_name_the_tables_they_serve() -> None:
    made = [table for name, table in catalog().items() if table.maker and not table.public]

    assert [table.name for table in made if not re.search(r"\bUsed\s+by\s+\w", table.summary)] == []


def test_needs_and_drops_exist() -> None:
    named = {name for table in catalog().values() for name in (*table.needs, *table.drops)}

    assert named - set(catalog()) == set()


def test_made_tables_have_the_columns_of_their_headers() -> None:
    events = [step(1, 0, 100), begin("a", 1), begin("b", 2), end(3), end(4), x("c", 5, 1), kernel("k", 6, 1)]
    with store_over(events) as store:
        for name, table in catalog().items():
            if table.maker:
                store.build([name])
                found = [row["column_name"] for row in store.select(f'DESCRIBE "{name}"')]
                assert found == [column.name for column in table.columns], name


def test_activities_are_selected_by_name(empty: duckdb.DuckDBPyConnection) -> None:
    mask = "(1::BIGINT << class_of('copy')) | (1::BIGINT << class_of('start_up'))"
    for doing, shown in (("['copy']", True), ("['fill', 'start_up']", True), ("['fill', 'compute']", False)):
        assert empty.execute(f"SELECT shows(activities({mask}), {doing})").fetchall() == [(shown,)]


@pytest.mark.parametrize("sql", ["shows(['copy'], ['kopy'])", "class_of('kopy')"])
def test_an_activity_that_does_not_exist_is_refused(sql: str, empty: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.ConversionException, match="kopy"):
        empty.execute(f"SELECT {sql}")
