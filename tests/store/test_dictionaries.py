"""Names and categories are numbers inside the store and text everywhere else."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from events import kernel, x
from stores import store_over

from perftool.errors import QueryTimeoutError
from perftool.store import dictionaries
from perftool.store.load import LONGEST_NAME
from perftool.store.trace_store import TraceStore

EVENTS = [x("b", 0, 10), x("a", 1, 2), x("c", 4, 2, cat="User_Annotation"), kernel("k", 5, 3)]


def types(store: TraceStore) -> dict[str, str]:
    return {row["column_name"]: row["column_type"] for row in store.select("DESCRIBE slices")}


def test_the_store_keeps_names_as_numbers() -> None:
    with store_over(EVENTS) as store:
        store.build(["slices"])
        assert {name for name, kind in types(store).items() if kind.startswith("ENUM")} == {"name", "cat", "side"}


def test_names_are_sorted_as_text_is() -> None:
    names = ["b", "B", "", "é", "a b", "10", "9"]
    with store_over([x(name, at, 1) for at, name in enumerate(names)]) as store:
        store.build(["slices"])
        found = [row["name"] for row in store.select("SELECT name FROM slices ORDER BY name")]
    assert found == sorted(names, key=str.encode)


def test_a_frame_has_text() -> None:
    with store_over(EVENTS) as store:
        frame = store.frame("slices")
    # A pandas category would have another dtype and would list names that a selection does not contain.
    assert [str(frame[name].dtype) in ("object", "str") for name in ("name", "cat", "side")] == [True] * 3
    assert sorted(frame["name"]) == ["a", "b", "c", "k"]


def test_a_query_has_text() -> None:
    with store_over(EVENTS) as store:
        _, rows = store.query("SELECT DISTINCT typeof(name), typeof(cat), name[1:1] = name FROM slices")
    assert rows == [("VARCHAR", "VARCHAR", True)]


def shown(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with store_over(events) as store:
        return [*store.rows("slices"), *store.rows("device_ops"), *store.rows("ops")]


def test_more_names_than_numbers_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = shown(EVENTS)
    monkeypatch.setattr(dictionaries, "_MOST_VALUES", 3)
    with store_over(EVENTS) as store:
        store.build(["slices"])
        assert (types(store)["name"], types(store)["cat"]) == ("VARCHAR", "VARCHAR")
    assert shown(EVENTS) == expected


def test_a_table_interrupted_by_a_time_limit_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    create, created = dictionaries._create, []

    def broken_off(connection: duckdb.DuckDBPyConnection, name: str, values: str) -> None:
        create(connection, name, values)
        created.append(name)
        if len(created) == 2:
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")

    monkeypatch.setattr(dictionaries, "_create", broken_off)
    with store_over(EVENTS) as store:
        with pytest.raises(QueryTimeoutError):
            store.query("SELECT count(*) FROM slices")
        assert store.query("SELECT count(*) FROM slices")[1] == [(4,)]


def test_names_with_special_characters_are_kept() -> None:
    names = ["\x00", "a\x00b", "'", '"', "\\", "\n", "\U0001f600", "x" * LONGEST_NAME, "\ufeff", "A", "a"]
    with store_over([x(name, at, 1) for at, name in enumerate(names)]) as store:
        assert [row["name"] for row in sorted(store.rows("slices"), key=lambda row: row["ts"])] == names


def test_events_without_names_are_left_out() -> None:
    with store_over([{"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]) as store:
        assert store.rows("slices") == []


def test_a_name_that_is_too_long_is_cut() -> None:
    with store_over([x("x" * 100_000, 1, 1)]) as store:
        assert [row["name"] for row in store.rows("slices")] == ["x" * LONGEST_NAME + "…"]
