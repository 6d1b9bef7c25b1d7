"""The database of a store, with one connection per thread and limits on cores and memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import duckdb

from perftool.errors import OutOfMemoryError
from perftool.model.machine_memory import free_memory_mb
from perftool.store.database import open_database

Made = TypeVar("Made")
_SETTINGS = (
    # DuckDB would write its progress bar to stdout.
    "SET enable_progress_bar = false",
    # Prevent DuckDB from choosing a slow loop join when one side has few rows.
    "SET asof_loop_join_threshold = 0",
)


class Connections:
    """Connections to the database at ``path``, one per thread, so that statements can run in parallel."""

    def __init__(self, path: str) -> None:
        self._own = threading.local()
        self._root = open_database(path)
        self._all: list[duckdb.DuckDBPyConnection] = []
        self._limit_mb: int | None = None
        self._limiting = threading.Lock()
        self.side_by_side = False
        self._cores = 1

    def here(self) -> duckdb.DuckDBPyConnection:
        """Return the connection of the calling thread."""
        known: duckdb.DuckDBPyConnection | None = getattr(self._own, "connection", None)
        if known is None:
            known = self._root.cursor()
            for setting in _SETTINGS:
                known.execute(setting)
            self._own.connection = known
            self._all.append(known)
        return known

    def use(self, cores: int, *, side_by_side: bool) -> None:
        """Use at most ``cores`` processor cores. With ``side_by_side``, two statements may run at a time.

        DuckDB then gets one thread fewer, because the second statement runs on its caller's thread. DuckDB's idle
        threads busy-wait, which would take 10 % of all CPU time on two cores.
        """
        self.side_by_side = side_by_side and cores > 1
        self._cores = cores
        self._use(cores - 1 if self.side_by_side else cores)

    def one_at_a_time(self) -> None:
        """Let each statement use all cores from now on."""
        self.use(self._cores, side_by_side=False)

    @contextmanager
    def all_cores(self) -> Iterator[None]:
        """Let statements in the block use all cores. During the block, no other thread may run a statement."""
        if not self.side_by_side:
            yield
            return
        self._use(self._cores)
        try:
            yield
        finally:
            self._use(self._cores - 1)

    def _use(self, threads: int) -> None:
        self.here().execute(f"SET threads = {threads}")

    def limit(self, memory_mb: int) -> None:
        """Limit DuckDB to ``memory_mb``; it spills the rest to disk."""
        self._limit_mb = memory_mb
        self.here().execute(f"SET memory_limit = '{memory_mb}MB'")

    def with_room(self, ask: Callable[[], Made]) -> Made:
        """Call ``ask`` and return its result. Double the memory limit and retry whenever DuckDB exceeds it, because
        DuckDB cannot spill everything. Raise OutOfMemoryError when the machine has too little free memory.
        """
        while True:
            limit_mb = self._limit_mb
            try:
                return ask()
            except duckdb.OutOfMemoryException:
                self._allow_more(limit_mb)

    def _allow_more(self, than_mb: int | None) -> None:
        with self._limiting:
            if self._limit_mb is None or 2 * self._limit_mb > self._limit_mb + free_memory_mb():
                raise OutOfMemoryError(self._limit_mb)
            # Another thread may have raised the limit in the meantime.
            if self._limit_mb == than_mb:
                self.limit(2 * self._limit_mb)

    def interrupt(self) -> None:
        """Interrupt the statements of all threads."""
        for connection in self._all:
            connection.interrupt()

    def close(self) -> None:
        for connection in self._all:
            connection.close()
        self._root.close()
