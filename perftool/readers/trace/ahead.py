"""An iterator that works ahead of the one who takes from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from threading import Event, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """The items of ``source``, made on a thread of their own, at most ``most`` before they are taken.

    What ``source`` raises is raised where the item would be taken. Use as a context manager: leaving ends the thread.
    """

    def __init__(self, source: Iterable[Item], most: int) -> None:
        self._source = source
        self._made: Queue[Item | _End] = Queue(most)
        self._unwanted = Event()
        self._thread = Thread(target=self._make, name="ahead", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *exc: object) -> None:
        self._unwanted.set()
        while self._thread.is_alive():
            # It may wait for room.
            try:
                self._made.get(timeout=0.01)
            except Empty:
                continue
        self._thread.join()

    def _taken(self) -> Iterator[Item]:
        while not isinstance(item := self._made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    def _make(self) -> None:
        end = _End(None)
        try:
            for item in self._source:
                if self._unwanted.is_set():
                    return
                self._made.put(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who takes
            end = _End(error)
        self._made.put(end)


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error
