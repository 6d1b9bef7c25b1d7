"""Tests for work that two threads share."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from perftool.store.together import ParallelCalls, SecondThread, TableScheduler


@pytest.fixture
def second() -> SecondThread:
    return SecondThread(lambda: None, lambda: True)


def test_results_come_in_the_order_of_the_calls(second: SecondThread) -> None:
    calls = ParallelCalls([partial(int, number) for number in range(50)])
    second.share(calls)
    second.close()

    assert calls.results == list(range(50))


def test_both_threads_work(second: SecondThread) -> None:
    """Each call waits until the other one has begun, so a single thread would wait forever."""
    both = threading.Barrier(2, timeout=60)
    calls = ParallelCalls([both.wait, both.wait])
    second.share(calls)
    second.close()

    assert sorted(calls.results) == [0, 1]


def test_the_error_of_either_thread_is_raised(second: SecondThread) -> None:
    both = threading.Barrier(2, timeout=60)

    def fail(here: int) -> None:
        both.wait()
        if (threading.current_thread() is threading.main_thread()) == bool(here):
            raise ValueError("broken")

    for here in (0, 1):
        with pytest.raises(ValueError, match="broken"):
            second.share(ParallelCalls([partial(fail, here)] * 2))
    second.close()


def test_nested_work_runs_on_one_thread(second: SecondThread) -> None:
    inner = ParallelCalls([partial(int, 7)])
    outer: ParallelCalls[None] = ParallelCalls([partial(second.share, inner), lambda: None])
    second.share(outer)
    second.close()

    assert inner.results == [7]


def test_no_table_is_begun_before_what_it_needs() -> None:
    needs = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"], "f": ["a"]}
    tables = _Recorded(needs)
    thread = SecondThread(lambda: None, lambda: True)
    thread.share(TableScheduler(tables, ["e", "f", "b"]))
    thread.close()

    assert sorted(tables.made) == sorted(needs)
    assert tables.early == []


class _Recorded:
    def __init__(self, needs: dict[str, list[str]]) -> None:
        self._needs = needs
        self.made: list[str] = []
        self.early: list[str] = []

    def make(self, name: str) -> None:
        self.early += [need for need in self._needs[name] if need not in self.made]
        self.made.append(name)

    def missing(self, name: str) -> list[str] | None:
        return None if name in self.made else [need for need in self._needs[name] if need not in self.made]
