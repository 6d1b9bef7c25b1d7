"""Makes tables with two threads: what one statement cannot use of the processor, a second one does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class _Tables(Protocol):
    def make(self, name: str) -> None: ...
    def missing(self, name: str) -> list[str] | None: ...


class Helper:
    """A second thread, started when it is first needed."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._thread: ThreadPoolExecutor | None = None

    def make(self, tables: _Tables, names: Iterable[str]) -> None:
        """Make ``names`` of ``tables`` here and on the second thread. Raises what the making of one raises."""
        work = _Work(tables, list(names))
        self._thread = self._thread or ThreadPoolExecutor(1, "tables")
        other = self._thread.submit(work.do)
        try:
            work.do()
        except BaseException:
            work.stop()
            while not other.done():
                # Again and again: it may be between two statements.
                self._interrupt()
                threading.Event().wait(0.001)
            raise
        other.result()

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown()


class _Work:
    """The tables to be made; each thread takes the first one for which all it needs is there."""

    def __init__(self, tables: _Tables, names: list[str]) -> None:
        self._tables, self._names = tables, names
        self._busy: set[str] = set()
        self._stopped = False
        self._changed = threading.Condition()

    def do(self) -> None:
        """Make tables until all are made, or somebody stops."""
        try:
            while (name := self._take()) is not None:
                self._tables.make(name)
                with self._changed:
                    self._busy.discard(name)
                    self._changed.notify_all()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Begin no further table."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _take(self) -> str | None:
        with self._changed:
            while not self._stopped:
                seen: set[str] = set()
                ready = next((found for name in self._names if (found := self._first_ready(name, seen))), None)
                if ready is not None:
                    self._busy.add(ready)
                    return ready
                if not self._busy:
                    return None
                self._changed.wait()
            return None

    def _first_ready(self, name: str, seen: set[str]) -> str | None:
        """``name`` or the first table below it that can be made now and that nobody makes."""
        if name in seen or name in self._busy:
            return None
        seen.add(name)
        missing = self._tables.missing(name)
        if not missing:
            return None if missing is None else name
        return next((found for need in missing if (found := self._first_ready(need, seen))), None)
