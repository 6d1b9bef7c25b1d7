"""Untrusted SQL runs in a separate process that it cannot escape and that has limited memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
import tomli
from each import of_each
from events import document, step, x
from stores import store_over

from perftool.engine.rules.pack import shipped_rules
from perftool.errors import QueryError, QueryTimeoutError
from perftool.model.rule import Rule
from perftool.store.catalog import catalog, macros
from perftool.store.sandbox.allowed import TABLE_FUNCTIONS, RefusedError, check
from perftool.store.sandbox.sandbox import Bounds, Result, Sandbox
from perftool.store.sandbox.wire import OUT_OF_MEMORY
from perftool.store.trace_store import TraceStore

HOSTILE = tomli.loads((Path(__file__).parent / "hostile_sql.toml").read_text())
REFUSED = [(kind, sql) for kind, statements in HOSTILE["refused"].items() for sql in statements]
BOUNDED = [(kind, sql) for kind, statements in HOSTILE["bounded"].items() for sql in statements]
MB = 1 << 20


@pytest.fixture(scope="module")
def opened() -> Iterator[TraceStore]:
    """A single store for all statements, because no statement may spoil it for the next."""
    with store_over([step(1, 0, 100), x("op", 10, 5)]) as store:
        yield store


def children_peak_kb() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def test_there_are_enough_hostile_statements() -> None:
    assert len({sql for _, sql in REFUSED + BOUNDED}) >= 130
    assert {kind for kind, _ in REFUSED + BOUNDED} >= {
        "file", "network", "extension", "settings", "secrets", "logging", "profiling", "resource", "recursion"
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "sql"), REFUSED)
def test_sql_that_reaches_out_is_refused(
    kind: str, sql: str, opened: TraceStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\ndo not tell\n")
    with pytest.raises(QueryError) as caught:
        opened.query(sql.format(file=secret, folder=tmp_path), time_limit_s=20)
    assert "do not tell" not in str(caught.value)
    assert not isinstance(caught.value, QueryTimeoutError)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert capfd.readouterr() == ("", "")
    assert opened.query("SELECT name FROM ops") == (["name"], [("op",)])


@pytest.mark.parametrize(("kind", "sql"), BOUNDED)
def test_sql_that_takes_too_much_is_stopped(
    kind: str, sql: str, opened: TraceStore, capfd: pytest.CaptureFixture[str]
) -> None:
    # The peak covers all child processes, including those of earlier tests.
    before = children_peak_kb()
    with suppress(QueryError):
        assert len(opened.ask(sql.format(), None, Bounds(0.4, rows=100, bytes=MB)).rows) <= 100
    assert capfd.readouterr() == ("", "")
    # The sandbox has ended, and its memory has stayed within the limit.
    assert children_peak_kb() <= max(before, 2_000_000)
    assert opened.query("SELECT name FROM ops") == (["name"], [("op",)])


def test_a_sandbox_whose_memory_is_used_up_is_replaced(opened: TraceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened.query("SELECT name FROM ops") == (["name"], [("op",)])
    asked: list[int] = []
    honest = Sandbox._ask

    def full_at_first(self: Sandbox, *arguments: Any) -> Result | str:
        result = honest(self, *arguments)
        assert self._child is not None
        asked.append(self._child.pid)
        return OUT_OF_MEMORY if len(asked) == 1 else result

    monkeypatch.setattr(Sandbox, "_ask", full_at_first)
    assert opened.query("SELECT name FROM ops") == (["name"], [("op",)])
    first, second = asked
    assert first != second


def test_a_query_that_exceeds_the_memory_of_a_new_process_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def full(self: Sandbox, sql: str, *_: Any) -> str:
        asked.append(sql)
        return OUT_OF_MEMORY

    monkeypatch.setattr(Sandbox, "_ask", full)
    with store_over([step(1, 0, 100), x("op", 10, 5)]) as store, pytest.raises(QueryError, match="more memory"):
        store.query("SELECT name FROM ops")
    assert len(asked) == 1


def test_rows_and_bytes_are_bounded_and_the_cut_is_reported(opened: TraceStore) -> None:
    some = opened.ask("SELECT range FROM range(2000)", None, Bounds(20, rows=1500))
    assert (len(some.rows), some.rows[-1], some.cut) == (1500, (1499,), True)
    all_of_them = opened.ask("SELECT range FROM range(1500)", None, Bounds(20, rows=1500))
    assert (len(all_of_them.rows), all_of_them.cut) == (1500, False)
    large = opened.ask("SELECT repeat('x', 10000) FROM range(5000)", None, Bounds(20, bytes=20 * MB))
    assert large.cut
    assert 0 < len(large.rows) < 2500


VALUES = [
    "NULL", "true", "-1", "170141183460469231731687303715884105727", "1.5::DOUBLE", "'inf'::DOUBLE",
    "1.50::DECIMAL(9,2)",
    "'text with \"quotes\" and ü'", "'\\xAA'::BLOB", "DATE '2024-02-29'", "TIMESTAMP '2024-02-29 12:00:01.5'",
    "TIME '12:00:01.5'", "INTERVAL 3 DAY", "uuid '00000000-0000-0000-0000-000000000001'", "[1, NULL, 2]", "[]",
    "{'a': 1, 'b': ['x']}", "MAP {1: 'x'}", "'{\"a\": 1}'::JSON", "array_value(1, 2)", "1::BIT", "1::UTINYINT",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_values_pass_the_pipe_unchanged(value: str, opened: TraceStore) -> None:
    sql = f"SELECT {value} AS v"
    assert opened.query(sql) == (["v"], [duckdb.connect().execute(sql).fetchall()[0]])


def test_the_tables_have_the_same_rows_and_types_inside(opened: TraceStore) -> None:
    for name in ("raw", "ops", "steps", "summary", "slices", "device_ops"):
        opened.build([name])
        assert opened.query(f"FROM {name.upper()}")[1] == [tuple(row.values()) for row in opened.select(f"FROM {name}")]
        inside = opened.query(f"DESCRIBE SELECT * FROM {name}")[1]
        # Users see names as text; only the program itself sees the numbers.
        documented = catalog()[name].as_text if name in catalog() else f"SELECT * FROM {name}"
        assert inside == [tuple(row.values()) for row in opened.select(f"DESCRIBE {documented}")]


def test_parameters_and_macros_work_inside(opened: TraceStore) -> None:
    assert opened.query("SELECT $a + 1, $b, len($c)", {"a": 1, "b": "x", "c": ["y"]})[1] == [(2, "x", 1)]
    assert opened.query("SELECT int_arg('{\"a\": 5}', 'a')")[1] == [(5,)]


def test_the_time_limit_includes_making_tables(opened: TraceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "SELECT sum(a.range * b.range) AS n FROM range(10000000) AS a, range(10000000) AS b"
    table = catalog()["optimizer_steps"]
    monkeypatch.setitem(catalog(), "optimizer_steps", type(table)(table.name, "", (), (), endless))
    with pytest.raises(QueryTimeoutError):
        opened.query("SELECT * FROM optimizer_steps", time_limit_s=0.3)
    monkeypatch.undo()
    assert opened.query("SELECT * FROM optimizer_steps")[1] == []


def test_the_process_inherits_nothing_from_this_one(opened: TraceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFTOOL_SECRET", "do not tell")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    opened._sandbox.close()
    opened.query("SELECT 1")
    child = opened._sandbox._child
    assert child is not None
    if Path("/proc/self/fd").exists():
        assert b"do not tell" not in Path(f"/proc/{child.pid}/environ").read_bytes()
        targets = [os.readlink(fd) for fd in Path(f"/proc/{child.pid}/fd").iterdir()]
        assert os.readlink(f"/proc/self/fd/{write}") not in targets
    os.close(read)
    os.close(write)


def test_the_process_ends_with_the_store() -> None:
    with store_over([step(1, 0, 100)]) as store:
        store.query("SELECT 1")
        child = store._sandbox._child
        assert child is not None
        assert child.poll() is None
    assert child.poll() is not None


def test_a_killed_process_is_reported_and_replaced(opened: TraceStore) -> None:
    opened.query("SELECT 1")
    child = opened._sandbox._child
    assert child is not None
    child.kill()
    child.wait()
    with pytest.raises(QueryError, match="the query crashed the process that ran it"):
        opened.query("SELECT 1")
    assert opened.query("SELECT 1")[1] == [(1,)]


def test_long_sql_is_refused_unread(opened: TraceStore) -> None:
    with pytest.raises(QueryError, match="longer than 1,048,576 characters"):
        opened.query("SELECT " + "(" * 2_000_000)
    with pytest.raises(QueryError):
        opened.query("SELECT " + "(" * 500_000 + "1" + ")" * 500_000, time_limit_s=20)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(macros())
        yield opened


@of_each({rule.code: rule for rule in shipped_rules() if rule.sql})
def test_shipped_rules_would_be_allowed_too(rule: Rule, connection: duckdb.DuckDBPyConnection) -> None:
    """The allowed functions include everything that shipped rules use, so that authors of packs can use it too."""
    for sql in filter(None, (rule.only_if, rule.sql)):
        check(connection, sql, [*catalog(), "raw"])


_OF_DUCKDB = "pragma_database_list"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file FROM (WITH {0} AS (SELECT 1) SELECT 1 FROM ops) a, {0}",
        "SELECT file FROM {0} ORDER BY (WITH {0} AS (SELECT 1) SELECT 1)",
        "(WITH {0} AS (SELECT 1) SELECT '2') UNION ALL SELECT file FROM {0}",
        "WITH {0} AS (SELECT 1) SELECT file FROM main.{0}",
        "WITH {0} AS (SELECT file FROM {0}) FROM {0}",
        "WITH {0} AS MATERIALIZED (SELECT file FROM {0}) FROM {0}",
        "WITH a AS (SELECT file FROM {0}), {0} AS (SELECT 1) FROM a",
        "WITH RECURSIVE {0} AS (SELECT file FROM {0} UNION ALL SELECT 'x' FROM {0} WHERE false) FROM {0}",
        # The first name contains the Kelvin sign, which str.lower() turns into a k.
        "WITH duc\u212adb_databases AS (SELECT 1) SELECT path FROM duckdb_databases",
    ],
)
def test_a_relation_of_duckdb_is_not_reached_under_the_name_of_an_expression(
    sql: str, connection: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(RefusedError, match="there is no table"):
        check(connection, sql.format(_OF_DUCKDB), ["ops"])


@pytest.mark.parametrize(
    "sql",
    [
        "WITH a AS (SELECT 1), b AS (FROM a) FROM b, A",
        "WITH a AS MATERIALIZED (SELECT 1), b AS MATERIALIZED (FROM a), c AS (FROM b, a) FROM c, b, a",
        "WITH ops AS (FROM ops) FROM main.ops, ops",
        "WITH RECURSIVE r AS (SELECT 1 i UNION ALL SELECT i + 1 FROM (FROM r) WHERE i < 3) FROM r",
        "WITH RECURSIVE r AS (SELECT 1 i UNION ALL (WITH s AS (FROM r) SELECT i + 1 FROM s WHERE i < 3)) FROM r",
        "WITH a AS (SELECT 1 x) SELECT (SELECT max(x) FROM a) FROM (WITH b AS (FROM a) FROM b UNION FROM a), a",
    ],
)
def test_expressions_are_found_where_their_names_mean_them(sql: str, connection: duckdb.DuckDBPyConnection) -> None:
    check(connection, sql, ["ops"])


@pytest.mark.parametrize(
    "writing",
    [
        "COPY ops TO 'out.csv'",
        "INSERT INTO ops VALUES (1) RETURNING *",
        "UPDATE ops SET name = 'x' RETURNING *",
        "DELETE FROM ops RETURNING *",
    ],
)
@pytest.mark.parametrize("sql", ["WITH x AS ({}) FROM x", "SELECT (WITH x AS ({}) SELECT count(*) FROM x)"])
def test_an_expression_that_writes_is_refused(sql: str, writing: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(RefusedError):
        check(connection, sql.format(writing), ["ops"])


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of the network are Linux's")
def test_the_process_has_no_network_where_the_system_lets_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            "import socket; from perftool.store.sandbox.inside import leave_network\n"
            "left = leave_network()\n"
            f"reached = socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})) == 0\n"
            "print(left, reached)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout in ("True False\n", "False True\n")


def test_only_computing_table_functions_of_this_duckdb_are_allowed(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Functions that future versions of DuckDB add must be refused too."""
    found = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type IN ('table', 'pragma', 'table_macro') AND internal"
    ).fetchall()
    names = {name for (name,) in found} - TABLE_FUNCTIONS
    assert len(names) > 50
    for name in sorted(names):
        for sql in (f"SELECT * FROM {name}('x')", f"SELECT (SELECT count(*) FROM {name}('x'))", f"FROM {name}()"):
            with pytest.raises(RefusedError):
                check(connection, sql, ["ops"])


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limits")
def test_limits_of_the_environment_stay_as_they_are(tmp_path: Path) -> None:
    """Batch systems set `ulimit -t`, and a process may not raise that limit."""
    trace = tmp_path / "run.json"
    trace.write_bytes(document([step(1, 0, 100), x("op", 10, 5)]))
    command = [sys.executable, "-m", "perftool", "query", "-q", str(trace), "SELECT 41 + 1 AS answer FROM steps"]
    limited = ["bash", "-c", 'ulimit -t 100; exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert (done.returncode, "42" in done.stdout) == (0, True), done.stderr
