"""The macro that formats times agrees with the Python function."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from each import of_each

from perftool.store.catalog import macros
from perftool.units import format_ns

EDGES = [10**power + shift for power in range(13) for shift in (-6, -1, 0, 1, 6)]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute(macros())
        yield opened


@of_each({str(ns): ns for ns in (0, 7, *EDGES, *(-edge for edge in EDGES), 32_620_000, 123_456_789, 400_000)})
def test_a_time_reads_the_same_in_sql(ns: int, connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("SELECT time_text($ns)", {"ns": ns}).fetchone() == (format_ns(ns),)


def test_a_missing_time_has_no_text(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("SELECT time_text(NULL::BIGINT)").fetchone() == (None,)
