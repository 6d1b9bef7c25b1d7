"""Compares the interval macros with naive Python, and checks the laws of unions."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import pairwise

import duckdb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.store.catalog import macros
from perftool.store.sweep import Intervals, Sweep, sweep, unite

Interval = tuple[int, int, int, int]
"""Rank, class, start, end."""


@cache
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(macros())
    return connection


def call(macro: str, intervals: list[Interval]) -> list[tuple[int, ...]]:
    connection = database()
    connection.execute('CREATE OR REPLACE TABLE given (rank INTEGER, class INTEGER, ts BIGINT, "end" BIGINT)')
    if intervals:
        connection.executemany("INSERT INTO given VALUES (?, ?, ?, ?)", [list(row) for row in intervals])
    return connection.execute(f"SELECT * FROM {macro}(given) ORDER BY ALL").fetchall()


def covered(intervals: list[tuple[int, ...]]) -> set[tuple[int, int, int]]:
    """Return all points (rank, class, time) in half-open intervals."""
    return {(rank, kind, at) for rank, kind, ts, end in intervals for at in range(ts, end)}


LENGTHS = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 30), st.integers(-2, 8))
INTERVALS = st.lists(LENGTHS.map(lambda i: (i[0], i[1], i[2], i[2] + i[3])), max_size=20)
PROPERTY = settings(max_examples=20)


@PROPERTY
@given(INTERVALS)
def test_a_union_covers_the_same_points_with_separate_intervals(intervals: list[Interval]) -> None:
    union = call("interval_union", intervals)
    assert covered(union) == covered(intervals)
    for before, after in pairwise(union):
        assert before[:2] != after[:2] or before[3] < after[2]


@PROPERTY
@given(INTERVALS, st.integers())
def test_a_union_is_idempotent_and_independent_of_order(intervals: list[Interval], seed: int) -> None:
    shuffled = random.Random(seed).sample(intervals, len(intervals))
    union = call("interval_union", intervals)
    assert call("interval_union", shuffled) == union
    assert call("interval_union", union) == union  # type: ignore[arg-type]


@PROPERTY
@given(INTERVALS)
def test_a_sweep_says_which_classes_are_active_when(intervals: list[Interval]) -> None:
    window = [(rank, -1, 0, 40) for rank in (0, 1)]
    union = call("interval_union", intervals)
    active = covered(union)
    swept = call("interval_sweep", [*window, *union])  # type: ignore[list-item]
    for rank, ts, end, mask in swept:
        for at in range(ts, end):
            assert mask == sum(1 << kind for kind in range(4) if (rank, kind, at) in active)


@PROPERTY
@given(INTERVALS)
def test_busy_and_idle_make_up_the_window(intervals: list[Interval]) -> None:
    clipped = [(rank, 0, max(ts, 5), min(end, 25)) for rank, _, ts, end in intervals]
    union = call("interval_union", clipped)
    swept = call("interval_sweep", [(0, -1, 5, 25), (1, -1, 5, 25), *union])  # type: ignore[list-item]
    for rank in (0, 1):
        busy = sum(end - ts for at, ts, end, mask in swept if at == rank and mask)
        idle = sum(end - ts for at, ts, end, mask in swept if at == rank and not mask)
        assert busy == len({at for each, _, at in covered(clipped) if each == rank})
        assert busy + idle == 20


@PROPERTY
@given(INTERVALS)
def test_lengths_are_those_of_the_union(intervals: list[Interval]) -> None:
    points = covered(intervals)
    lengths = {(rank, kind): ns for rank, kind, ns in call("interval_lengths", intervals)}
    assert lengths == Counter((rank, kind) for rank, kind, _ in points)


@PROPERTY
@given(INTERVALS, st.sampled_from([0, 2**60]))
def test_arrays_are_united_and_swept_as_tables_are(intervals: list[Interval], late: int) -> None:
    """Arrays take a different code path if their times are too far apart to place all groups one after the other."""
    given = [(rank, kind, ts + late * rank, end + late * rank) for rank, kind, ts, end in intervals]
    rank, kind, ts, end = np.array(given, dtype=np.int64).reshape(-1, 4).T
    united = unite(rank, kind, ts, end)
    assert _rows(united) == call("interval_union", given)

    rank, kind, ts, end = united
    assert sorted(_rows(sweep(rank, np.left_shift(1, kind), ts, end))) == call("interval_sweep", _rows(united))


@PROPERTY
@given(INTERVALS, INTERVALS, st.sets(st.integers(1, 30)))
def test_sweeping_period_by_period_gives_the_result_of_one_sweep(
    intervals: list[Interval], steps: list[Interval], cuts: set[int]
) -> None:
    known = [one for one in [*intervals, *steps] if one[3] > one[2] or one in steps]
    ranks = {rank for rank, *_ in known}
    spans = [(r, 0, min(k[2] for k in known if k[0] == r), max(k[3] for k in known if k[0] == r)) for r in ranks]
    assert sorted(_swept(intervals, [*steps, *spans], sorted(cuts))) == sorted(_swept(intervals, steps, []))


def _swept(intervals: list[Interval], steps: list[Interval], cuts: list[int]) -> list[Interval]:
    rank, _, ts, end = np.array(steps, dtype=np.int64).reshape(-1, 4).T
    sweeping, found = Sweep((rank, ts, end)), []
    for begin, until in pairwise([None, *cuts, None]):
        part = [one for one in intervals if one[3] > (-1 if begin is None else begin) and one[2] < (until or 99)]
        found += _rows(sweeping.add(*np.array(part, dtype=np.int64).reshape(-1, 4).T, begin, until))
    return found


def _rows(columns: Intervals) -> list[Interval]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_touching_intervals_become_one() -> None:
    assert call("interval_union", [(0, 0, 5, 8), (0, 0, 1, 5), (0, 1, 1, 2)]) == [(0, 0, 1, 8), (0, 1, 1, 2)]


@PROPERTY
@given(INTERVALS, INTERVALS)
def test_pairs_are_the_calls_of_a_thread_inside_another(ours: list[Interval], theirs: list[Interval]) -> None:
    insides, outsides = ([given for given in some if given[3] > given[2]] for some in (ours, theirs))
    calls: list[Interval] = []
    for call in outsides:
        if not any(_overlap_in_part(call, other) for other in calls):
            calls.append(call)
    assert _pairs("nested_pairs", insides, calls) == _inside_by_hand(insides, calls)


def _overlap_in_part(one: Interval, other: Interval) -> bool:
    (lane, _, ts, end), (own, _, start, stop) = one, other
    return own == lane and (start < ts < stop < end or ts < start < end < stop)


def _pairs(macro: str, insides: list[Interval], outsides: list[Interval]) -> list[tuple[int, int]]:
    connection = database()
    for name, rows in (("insides", insides), ("outsides", outsides)):
        connection.execute(f'CREATE OR REPLACE TABLE {name} (lane INTEGER, id INTEGER, ts BIGINT, "end" BIGINT)')
        for place, (lane, _, ts, end) in enumerate(rows):
            connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", [lane, place, ts, end])
    return connection.execute(f"SELECT outside, inside FROM {macro}(insides, outsides) ORDER BY ALL").fetchall()


def _inside_by_hand(insides: list[Interval], outsides: list[Interval]) -> list[tuple[int, int]]:
    return [
        (outer, inner)
        for outer, (lane, _, ts, end) in enumerate(outsides)
        for inner, (own, _, start, stop) in enumerate(insides)
        if own == lane and start >= ts and stop <= end
    ]
