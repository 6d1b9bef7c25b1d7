"""Work that two threads do together: what one statement cannot use of the processor, a second one does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

Made = TypeVar("Made")


class Work(Protocol):
    """Something that several threads may do parts of at the same time."""

    def do(self) -> None:
        """Do parts of it until none is left, or somebody stops."""

    def stop(self) -> None:
        """Begin no further part."""


class SecondThread:
    """A thread beside the one that asks, started when it is first needed; ``interrupt`` breaks off what it does.

    It is used while ``side_by_side`` says that there is a core for it.
    """

    def __init__(self, interrupt: Callable[[], None], side_by_side: Callable[[], bool]) -> None:
        self._interrupt, self._side_by_side = interrupt, side_by_side
        self._free = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def share(self, work: Work) -> None:
        """Do ``work`` here and, unless it has work already, on the second thread. Raises what a part of it raises."""
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
                    # Again and again: it may be between two statements.
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
    """Do parts of ``work``; after an error nobody else begins one either."""
    try:
        work.do()
    except BaseException:
        work.stop()
        raise


class Jobs(Generic[Made]):
    """Calls that do not need each other; ``results`` has what they return, in their order."""

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
        """Make calls until none is left, or somebody stops."""
        while (at := self._take()) is not None:
            self._results[at] = self._calls[at]()

    def stop(self) -> None:
        """Begin no further call."""
        self._stopped = True

    def _take(self) -> int | None:
        with self._lock:
            return None if self._stopped else next(self._next, None)


class StoppedError(Exception):
    """Somebody stopped the work that this was part of."""


class Turns:
    """The order of numbered parts, from 0 on: threads do them side by side up to where each needs its turn."""

    def __init__(self) -> None:
        self._next = 0
        self._stopped = False
        self._changed = threading.Condition()

    def wait(self, number: int) -> None:
        """Return once it is the turn of the part ``number``. Raises StoppedError when it will never be."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._next >= number)
            if self._stopped:
                raise StoppedError

    def end(self) -> None:
        """It is the turn of the next part."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """There will be no further turn."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Tables(Protocol):
    """What makes tables: ``missing`` says what has to be there before, and None of one that is made."""

    def make(self, name: str) -> None: ...
    def missing(self, name: str) -> list[str] | None: ...


class Making:
    """The tables to be made; each thread takes the first one for which all it needs is there."""

    def __init__(self, tables: Tables, names: Sequence[str]) -> None:
        self._tables, self._names = tables, names
        self._busy: set[str] = set()
        self._stopped = False
        self._changed = threading.Condition()

    def do(self) -> None:
        """Make tables until all are made, or somebody stops."""
        while (name := self._take()) is not None:
            self._tables.make(name)
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()

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
