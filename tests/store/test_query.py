"""Untrusted SQL can read nothing but the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest
from events import step, x
from stores import store_over

from perftool.errors import InputError, QueryError
from perftool.store.trace_store import TraceStore

Open = Callable[..., TraceStore]
TRACE = [step(1, 0, 100), x("op", 10, 5)]


@pytest.fixture(scope="module")
def opened() -> Iterator[TraceStore]:
    """A single store for all refused statements."""
    with store_over(TRACE) as store:
        yield store


def test_a_select(store: Open) -> None:
    opened = store(TRACE)
    assert opened.query("SELECT name, dur FROM ops WHERE dur > $least", {"least": 1}) == (
        ["name", "dur"],
        [("op", 5000)],
    )


OLD_DUCKDB = duckdb.__version__.startswith(("0.", "1."))


def test_sql_that_is_not_text_is_refused(store: Open) -> None:
    with pytest.raises(QueryError, match="the SQL is not valid UTF-8"):
        store(TRACE).query("SELECT '\udce4'")


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE raw",
        "DELETE FROM raw",
        "INSERT INTO raw SELECT * FROM raw",
        "CREATE TABLE mine AS SELECT 1",
        "ATTACH 'other.duckdb'",
        "COPY raw TO 'out.csv'",
        "EXPORT DATABASE 'out'",
        "SET enable_external_access = true",
        pytest.param(
            "PRAGMA database_size",
            marks=pytest.mark.skipif(OLD_DUCKDB, reason="before 2.0 this is read as the SELECT that it stands for"),
        ),
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT 1; DROP TABLE raw",
        "",
        "   ;",
        "-- nothing",
    ],
)
def test_only_one_select_is_allowed(sql: str, opened: TraceStore) -> None:
    with pytest.raises(QueryError, match="only a single SELECT is allowed"):
        opened.query(sql)


@pytest.mark.parametrize("sql", ["SELECT nonsense FROM ops", "SELECT * FROM nothing", "SELECT (", "SELECT $missing"])
def test_an_error_is_one_sentence(sql: str, opened: TraceStore) -> None:
    with pytest.raises(QueryError) as caught:
        opened.query(sql)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_query_that_takes_too_long(store: Open) -> None:
    opened = store(TRACE)
    with pytest.raises(QueryError, match=r"the query took longer than 0\.2 s"):
        opened.query("SELECT sum(a.range * b.range) FROM range(10000000) AS a, range(10000000) AS b", time_limit_s=0.2)
    assert opened.query("SELECT count(*) FROM ops")[1] == [(1,)]


def test_tables_can_still_be_made_after_a_query(store: Open) -> None:
    opened = store(TRACE)
    opened.query("SELECT 1")
    assert [row["dur"] for row in opened.rows("steps")] == [100_000]


def test_inputs_come_before_tables(store: Open, write_trace: Callable[..., str]) -> None:
    opened = store(TRACE)
    opened.rows("ops")
    with pytest.raises(QueryError, match="inputs must be added before"):
        opened.add_trace(write_trace(TRACE, file="late.json"))


def test_a_store_without_inputs() -> None:
    with TraceStore() as empty, pytest.raises(InputError, match="no input was read"):
        empty.rows("ops")


def test_an_unknown_table_is_answered_with_similar_ones(store: Open) -> None:
    with pytest.raises(QueryError, match=r"there is no table 'opps'; did you mean ops.*\?$"):
        store(TRACE).frame("opps")


def test_a_frame(store: Open) -> None:
    frame = store(TRACE).frame("ops")
    assert frame[["name", "ts", "dur"]].values.tolist() == [["op", 10_000, 5000]]


def test_ranks_come_from_the_trace_or_are_given(store: Open, write_trace: Callable[..., str]) -> None:
    with TraceStore() as opened:
        for number, metadata in enumerate([{"distributedInfo": {"rank": 2}}, {}, {"distributedInfo": {"rank": 2}}]):
            opened.add_trace(write_trace(TRACE, file=f"t{number}.json", **metadata))
        assert [read.rank for read in opened.inputs] == [2, 0, 1]
        kinds = {read.rank: [issue.kind for issue in read.issues] for read in opened.inputs_with_issues()}
    assert kinds == {2: [], 0: [], 1: ["rank taken"]}


def test_nothing_is_drawn_on_stdout(store: Callable[..., TraceStore]) -> None:
    # By default, a query of more than two seconds draws a progress bar, which would end up in the JSON report.
    assert store([step(1, 0, 10)]).select("SELECT current_setting('enable_progress_bar') AS bar") == [{"bar": False}]
