"""A limit of time for what a connection does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from perftool.errors import QueryError, QueryTimeoutError


@contextmanager
def interrupted_after(connection: duckdb.DuckDBPyConnection, limit_s: float) -> Iterator[None]:
    """Break off what ``connection`` does in here after ``limit_s``; errors of DuckDB become QueryErrors."""
    timer = threading.Timer(limit_s, connection.interrupt)
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        raise QueryTimeoutError(limit_s) from None
    except duckdb.Error as error:
        raise QueryError(str(error).strip().splitlines()[0]) from None
    finally:
        timer.cancel()


@contextmanager
def whole_or_not(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """One transaction: what is broken off in here leaves nothing behind."""
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
