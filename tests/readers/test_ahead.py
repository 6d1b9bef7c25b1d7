"""Tests for the iterator that prefetches."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from perftool.readers.trace.ahead import Ahead


def test_every_item_comes_in_its_order() -> None:
    with Ahead(iter(range(100)), 3) as items:
        assert list(items) == list(range(100))


def test_at_most_one_item_more_than_the_limit_is_made() -> None:
    made = []

    def source() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    with Ahead(source(), 2) as items:
        assert next(items) == 0
    # One item was taken, two are waiting, and the thread holds one. When the iterator is closed, the thread reads at
    # most one more item.
    assert len(made) <= 6


def test_an_error_is_raised_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("damaged")

    with Ahead(source(), 4) as items:
        assert next(items) == 1
        with pytest.raises(ValueError, match="damaged"):
            next(items)


def test_leaving_ends_the_thread() -> None:
    with Ahead(iter(range(1000)), 1) as items:
        next(items)
    assert "ahead" not in {thread.name for thread in threading.enumerate()}


def test_all_consumers_learn_of_the_end() -> None:
    taken: list[int] = []
    with Ahead(iter(range(100)), 3) as items:
        threads = [threading.Thread(target=lambda: taken.extend(items)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(taken) == list(range(100))


def test_waiting_consumers_learn_of_the_end() -> None:
    silent = threading.Event()

    def source() -> Iterator[int]:
        silent.wait(60)
        yield 1

    with Ahead(source(), 1) as items:
        received: list[list[int]] = []
        thread = threading.Thread(target=lambda: received.append(list(items)))
        thread.start()
        items.stop()
        thread.join(60)
        assert received == [[]]
        silent.set()


def test_an_error_does_not_wait_for_a_silent_source() -> None:
    silent = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        silent.wait(60)

    with pytest.raises(ValueError, match="elsewhere"), Ahead(source(), 1):
        raise ValueError("elsewhere")
    assert not silent.is_set()
    silent.set()
