"""Divides work between two threads, because a single statement does not use all cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

Made = TypeVar("Made")


class Work(Protocol):
    """Work that several threads can do part by part."""

    def do(self) -> None:
        """Do parts until none are left or ``stop`` is called."""

    def stop(self) -> None:
        """Prevent all threads from starting another part."""


class SecondThread:
    """A second thread, started on first use. ``interrupt`` interrupts its statement.

    The thread is used only if ``side_by_side()`` is true, that is, if there is a core for it.
    """

    def __init__(self, interrupt: Callable[[], None], side_by_side: Callable[[], bool]) -> None:
        self._interrupt, self._side_by_side = interrupt, side_by_side
        self._free = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def share(self, work: Work) -> None:
        """Do ``work`` on this thread, and on the second thread if it is idle. Re-raise errors from both."""
        if not self._side_by_side() or not self._free.acquire(blocking=False):
            work.do()
            return
        try:
            self._pool = self._pool or ThreadPoolExecutor(1, "second")
            other = self._pool.submit(_do, work)
            try:
                _do(work)
            except BaseException:
                while not other.done():
                    # Interrupt repeatedly, because the thread may be between two statements.
                    self._interrupt()
                    threading.Event().wait(0.001)
                raise
            other.result()
        finally:
            self._free.release()

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()


def _do(work: Work) -> None:
    """Do parts of ``work``. Stop it for all threads after an error."""
    try:
        work.do()
    except BaseException:
        work.stop()
        raise


class ParallelCalls(Generic[Made]):
    """Independent calls as ``Work``. ``results`` contains their return values, in order."""

    def __init__(self, calls: Sequence[Callable[[], Made]]) -> None:
        self._calls = calls
        self._next = iter(range(len(calls)))
        self._lock = threading.Lock()
        self._results: dict[int, Made] = {}
        self._stopped = False

    @property
    def results(self) -> list[Made]:
        return [self._results[at] for at in range(len(self._calls))]

    def do(self) -> None:
        """Make calls until none are left or ``stop`` is called."""
        while (at := self._take()) is not None:
            self._results[at] = self._calls[at]()

    def stop(self) -> None:
        """Prevent all threads from making another call."""
        self._stopped = True

    def _take(self) -> int | None:
        with self._lock:
            return None if self._stopped else next(self._next, None)


class StoppedError(Exception):
    """Another thread stopped the shared work."""


class Sequencer:
    """Makes parallel threads take turns in the order of their part numbers (from 0)."""

    def __init__(self) -> None:
        self._next = 0
        self._stopped = False
        self._changed = threading.Condition()

    def wait(self, number: int) -> None:
        """Wait until it is the turn of part ``number``. Raise StoppedError if ``stop`` is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._next >= number)
            if self._stopped:
                raise StoppedError

    def end(self) -> None:
        """End this turn and start the next."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Allow no more turns."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Tables(Protocol):
    """Creates tables. ``missing`` lists the tables that a table needs first, and returns None once the table exists."""

    def make(self, name: str) -> None: ...
    def missing(self, name: str) -> list[str] | None: ...


class TableScheduler:
    """Schedules tables. Each thread takes the first table that does not need another table to be created first."""

    def __init__(self, tables: Tables, names: Sequence[str]) -> None:
        self._tables, self._names = tables, names
        self._busy: set[str] = set()
        self._stopped = False
        self._changed = threading.Condition()

    def do(self) -> None:
        """Create tables until all exist or ``stop`` is called."""
        while (name := self._take()) is not None:
            self._tables.make(name)
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()

    def stop(self) -> None:
        """Prevent all threads from starting another table."""
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
        """Return the first table, among ``name`` and the tables that it needs, that can be created now and that no
        thread is creating, or None if there is none."""
        if name in seen or name in self._busy:
            return None
        seen.add(name)
        missing = self._tables.missing(name)
        if not missing:
            return None if missing is None else name
        return next((found for need in missing if (found := self._first_ready(need, seen))), None)
