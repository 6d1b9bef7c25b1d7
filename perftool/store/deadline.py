"""Time limits and transactions for the statements of a connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from perftool.errors import QueryError, QueryTimeoutError


@contextmanager
def interrupted_after(
    connection: duckdb.DuckDBPyConnection, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Interrupt ``connection`` if the block takes longer than ``limit_s``, and turn DuckDB errors into QueryErrors.

    With ``time.process_time`` as ``clock``, no query fails because the machine is busy or was suspended.
    """
    start, over = clock(), threading.Event()

    def watch() -> None:
        while (left_s := limit_s - (clock() - start)) > 0:
            if over.wait(left_s):
                return
        connection.interrupt()

    # A daemon thread, because Python waits for other threads before it exits.
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except duckdb.InterruptException:
        raise QueryTimeoutError(limit_s) from None
    except duckdb.Error as error:
        raise QueryError(str(error).strip().splitlines()[0]) from None
    finally:
        over.set()


@contextmanager
def one_transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the block as one transaction, so that an interrupted block leaves nothing behind."""
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
