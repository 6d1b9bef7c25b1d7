"""The database of a store: a connection for each thread that asks it, and how many cores they use."""

from __future__ import annotations

import threading

import duckdb


class Connections:
    """Connections to the database at ``path``; each thread has its own, so that statements run side by side."""

    def __init__(self, path: str) -> None:
        self._own = threading.local()
        self._root = duckdb.connect(path)
        self._all: list[duckdb.DuckDBPyConnection] = []
        self.cores = 1

    def here(self) -> duckdb.DuckDBPyConnection:
        """The connection of the thread that calls."""
        known: duckdb.DuckDBPyConnection | None = getattr(self._own, "connection", None)
        if known is None:
            known = self._root.cursor()
            # DuckDB draws it on stdout, into our documents.
            known.execute("SET enable_progress_bar = false")
            self._own.connection = known
            self._all.append(known)
        return known

    def use(self, cores: int) -> None:
        """Use at most so many processor cores.

        One is left for a second statement. A statement that cannot use several would have them wait for it, and DuckDB
        waits in a loop: that costs a tenth of all CPU time on two cores.
        """
        self.cores = cores
        self.here().execute(f"SET threads = {max(1, cores - 1)}")

    def interrupt(self) -> None:
        """Break off what any thread does."""
        for connection in self._all:
            connection.interrupt()

    def close(self) -> None:
        """Close them all."""
        for connection in self._all:
            connection.close()
        self._root.close()
