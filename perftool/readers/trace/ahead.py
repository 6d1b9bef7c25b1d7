"""An iterator that prefetches items on a separate thread."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, Queue
from threading import Event, Thread
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")
# The interval at which a waiting consumer checks whether to stop, because the source may be a silent pipe.
_LOOK_S = 0.1
# How long to wait for the thread after an error. A thread that reads a pipe cannot end before the pipe does.
_PATIENCE_S = 1.0


class Ahead(Generic[Item]):
    """The items of ``source``, produced on a separate thread, at most ``most`` in advance.

    Several threads may consume them. Errors of ``source`` are raised in a consumer. Use it as a context manager, which
    ends the thread on exit.
    """

    def __init__(self, source: Iterable[Item], most: int) -> None:
        self._source = source
        self._made: Queue[Item | _End] = Queue(most)
        self._unwanted = Event()
        self._thread = Thread(target=self._make, name="ahead", daemon=True)

    def __enter__(self) -> Ahead[Item]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self.stop()
        until = None if kind is None else monotonic() + _PATIENCE_S
        while self._thread.is_alive() and (until is None or monotonic() < until):
            # The thread may be waiting for space in the queue.
            with suppress(Empty):
                self._made.get(timeout=0.01)

    def __iter__(self) -> Ahead[Item]:
        return self

    def __next__(self) -> Item:
        while not self._unwanted.is_set():
            with suppress(Empty):
                item = self._made.get(timeout=_LOOK_S)
                if not isinstance(item, _End):
                    return item
                # Put the end back for the other consumers.
                self._made.put(_End(None))
                if item.error is not None:
                    raise item.error
                break
        raise StopIteration

    def stop(self) -> None:
        """Stop producing and delivering items."""
        self._unwanted.set()

    def _make(self) -> None:
        end = _End(None)
        try:
            for item in self._source:
                if self._unwanted.is_set():
                    return
                self._made.put(item)
        except BaseException as error:  # noqa: BLE001 - raised in a consumer
            end = _End(error)
        self._made.put(end)


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
