"""Operations on intervals of host threads: same results as comparing every pair, at linear cost."""

from __future__ import annotations

import random

import numpy as np
import pytest
from events import Event, kernel, runtime, step, x
from stores import store_over

from perftool.replay import changes
from perftool.replay.changes import CHANGE_KINDS, Change, altered
from perftool.replay.model import Model, model_of
from perftool.replay.spans import inside, saved

Stretch = tuple[int, int, float]


def slow_saved(stretches: list[Stretch], until: int) -> float:
    """Return the time that ``stretches`` save before ``until``, added up one nanosecond at a time."""
    best = (
        [1.0 - factor for ts, end, factor in stretches if ts <= moment < end] for moment in range(until)
    )  # fmt: skip
    return sum(max(found) for found in best if found)


@pytest.mark.parametrize(
    "stretches",
    [
        [(2, 6, 0.5)], [(2, 6, 0.5), (2, 6, 0.5)], [(0, 9, 0.5), (3, 5, 0.0), (4, 8, 0.9)], [(3, 3, 0.5)],
        [(0, 4, 2.0), (2, 8, 0.5)], [(0, 4, 3.0), (1, 2, 2.0)], [(0, 2, 0.5), (2, 4, 0.25), (6, 9, 0.0)],
        *[[(n, 19 - n, 1 - n / 10) for n in order] for order in ([*range(10)], [*range(9, -1, -1)])],
    ],
)  # fmt: skip
def test_among_overlapping_stretches_the_largest_saving_counts(stretches: list[Stretch]) -> None:
    times, gone = saved(stretches)
    for until in range(20):
        assert np.interp(until, times, gone) == pytest.approx(slow_saved(stretches, until))


def test_a_time_is_in_an_interval_of_its_own_thread() -> None:
    chosen = random.Random(7)
    spans = [(chosen.randrange(3), ts, ts + chosen.randrange(9)) for ts in (chosen.randrange(90) for _ in range(30))]
    thread, time = np.repeat(np.arange(4), 100), np.tile(np.arange(100), 4)
    expected = [
        any(of == number and ts <= moment < end for of, ts, end in spans)
        for number, moment in zip(thread.tolist(), time.tolist(), strict=True)
    ]
    assert inside(thread, time, spans).tolist() == expected
    assert not inside(thread, time, []).any()


def launches() -> list[Event]:
    """Steps in which the thread launches six kernels on two streams."""
    events: list[Event] = []
    for number in range(3):
        events.append(step(number, number * 1_000, 1_000))
        for k in range(6):
            at, correlation = number * 1_000 + 100 + 10 * k, 10 * number + k + 1
            events += [runtime("cudaLaunchKernel", at, 5, correlation), x("aten::op", at - 1, 7)]
            events.append(kernel("k", at + 100 + 20 * k, 15, correlation, stream=7 + k % 2))
    return events


def gone_after(model: Model, made: list[Change]) -> list[tuple[int, int]]:
    """Return the links that no longer delay tasks, and the links whose lag changed."""
    result = altered(model.graph, made)
    differ = np.flatnonzero(result.lag != model.graph.links.lag)
    return [(int(link), int(result.lag[link])) for link in differ]


def test_launches_that_become_one_do_so_in_each_interval() -> None:
    with store_over(launches()) as store:
        model = model_of(store, 0)
    assert isinstance(model, Model)
    begin, track = model.graph.recording.begin, next(iter(model.graph.recording.tracks))

    def merge(*intervals: tuple[int, int]) -> list[tuple[int, int]]:
        return gone_after(model, [Change("merge", -1, track, begin + ts, begin + end) for ts, end in intervals])

    apart, touching = merge((99_000, 131_000)), merge((139_000, 170_000))
    assert apart
    assert touching
    # A merge in two intervals has both effects. Overlapping or equal intervals count once.
    assert merge((99_000, 131_000), (139_000, 170_000)) == sorted(apart + touching)
    assert merge((99_000, 131_000), (99_000, 121_000)) == apart
    assert merge((99_000, 131_000), (99_000, 131_000)) == apart
    assert merge((99_000, 101_000)) == []
    assert merge((99_000, 170_000)) != sorted(apart + touching)


@pytest.mark.parametrize("kind", CHANGE_KINDS)
def test_many_changes_take_no_more_passes_than_two(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_over(launches()) as store:
        model = model_of(store, 0)
    assert isinstance(model, Model)
    begin, track = model.graph.recording.begin, next(iter(model.graph.recording.tracks))
    # Count the passes over all links. A thousand nested changes need no more passes than two changes.
    passes: list[int] = []
    plain = np.isin
    monkeypatch.setattr(changes.np, "isin", lambda *given: passes.append(1) or plain(*given))

    def count(number: int) -> int:
        passes.clear()
        nested = [Change(kind, -1, track, begin + n, begin + 900_000 - n, 0.5) for n in range(number)]
        tasks = [Change(kind, task) for task in model.graph.recording.tasks.id.tolist()[:number]]
        altered(model.graph, [*nested, *tasks])
        return len(passes)

    assert count(2) == count(1_000) < 20
