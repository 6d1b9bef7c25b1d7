"""Time limits and transactions for the statements of a connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from perftool.errors import QueryError, QueryTimeoutError


@contextmanager
def interrupted_after(connection: duckdb.DuckDBPyConnection, limit_s: float) -> Iterator[None]:
    """Interrupt ``connection`` when the block takes longer than ``limit_s``; DuckDB errors become QueryErrors."""
    timer = threading.Timer(limit_s, connection.interrupt)
    # Python waits for non-daemon threads before it exits.
    timer.daemon = True
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
    """One transaction: an interrupted block leaves nothing behind."""
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
