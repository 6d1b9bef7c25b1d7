"""Compares depth and parent of slices with a naive stack."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.store.nesting import Nesting, Slices, nest

Span = tuple[int, int, int]
"""Track, start, end."""


def nested(spans: list[Span]) -> list[tuple[int, int]]:
    """Return the (depth, parent) of each span from ``nest``, which gets the spans in reverse order."""
    numbers = np.arange(len(spans))[::-1]
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)[::-1].T
    order, depth, parent = nest(numbers, *columns)
    above = np.where(parent >= 0, numbers[parent], -1) if len(spans) else parent
    found = dict(zip(numbers[order].tolist(), zip(depth.tolist(), above.tolist(), strict=True), strict=True))
    return [found[index] for index in range(len(spans))]


def naive(spans: list[Span]) -> list[tuple[int, int]]:
    """Compute the same result with a stack per track: a slice is inside all slices that began before it and are still
    open.
    """
    found: dict[int, tuple[int, int]] = {}
    stacks: dict[int, list[int]] = {}
    for index in sorted(range(len(spans)), key=lambda i: (spans[i][0], spans[i][1], -spans[i][2], i)):
        track, start, _ = spans[index]
        stack = [above for above in stacks.get(track, []) if spans[above][2] > start]
        found[index] = (len(stack), stack[-1] if stack else -1)
        stacks[track] = [*stack, index]
    return [found[index] for index in range(len(spans))]


def proper(children: st.SearchStrategy[list[Span]]) -> st.SearchStrategy[list[Span]]:
    """Trees of slices in which the children of a slice follow one another."""

    def around(groups: list[list[Span]]) -> list[Span]:
        at, shifted = 1, []
        for group in groups:
            shifted += [(0, start + at, end + at) for _, start, end in group]
            at += max((end for _, _, end in group), default=0) + 1
        return [(0, 0, at), *shifted]

    return st.lists(children, max_size=3).map(around)


TREES = st.recursive(st.just([(0, 0, 2)]), proper, max_leaves=12)


@settings(max_examples=40)
@given(TREES, st.randoms())
def test_well_nested_slices(spans: list[Span], shuffle) -> None:
    spans = [*spans, *((1, start, end) for _, start, end in spans)]
    shuffle.shuffle(spans)
    assert nested(spans) == naive(spans)


SPANS = st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)).map(
    lambda span: (span[0], span[1], span[1] + span[2])
)


@settings(max_examples=40)
@given(st.lists(SPANS, max_size=12))
def test_the_depth_of_overlapping_slices(spans: list[Span]) -> None:
    assert [depth for depth, _ in nested(spans)] == [depth for depth, _ in naive(spans)]


@settings(max_examples=40)
@given(st.lists(SPANS, max_size=12))
def test_a_parent_starts_first_on_the_same_track(spans: list[Span]) -> None:
    for index, (depth, parent) in enumerate(nested(spans)):
        assert (depth == 0) == (parent == -1)
        if parent >= 0:
            assert spans[parent][0] == spans[index][0]
            assert spans[parent][1] <= spans[index][1]
            assert parent != index


def test_slices_that_all_overlap() -> None:
    """Begins without ends create as many levels as slices. Visiting all slices at every level would take minutes."""
    count = 200_000
    found = nested([(0, at, count + 1) for at in range(count)])
    assert found == [(at, at - 1) for at in range(count)]


def test_no_slices() -> None:
    assert nested([]) == []


def test_a_child_and_its_sibling() -> None:
    assert nested([(0, 0, 10), (0, 1, 4), (0, 4, 6), (0, 4, 5), (0, 10, 12)]) == [
        (0, -1), (1, 0), (1, 0), (2, 2), (0, -1),
    ]  # fmt: skip


def test_slices_without_length() -> None:
    """A slice that begins with another slice is inside it. A slice that begins at the other's end follows it."""
    assert nested([(0, 0, 10), (0, 0, 0), (0, 10, 10)]) == [(0, -1), (1, 0), (0, -1)]


@settings(max_examples=80)
@given(st.lists(SPANS, max_size=16), st.sets(st.integers(0, 21), max_size=3))
def test_nesting_period_by_period_gives_the_result_for_all_slices(spans: list[Span], cuts: set[int]) -> None:
    numbered = [(at, *span, at % 2) for at, span in enumerate(spans)]
    assert _in_parts(numbered, sorted(cuts)) == _in_parts(numbered, [])


def _in_parts(slices: list[tuple[int, ...]], cuts: list[int]) -> list[tuple[int, ...]]:
    nesting, found = Nesting(), []
    for begin, until in pairwise([-1, *cuts, 100]):
        part = [each for each in slices if begin <= each[2] < until]
        columns = np.array(part, dtype=np.int64).reshape(-1, 5).T
        nested = nesting.add(Slices(*columns), until)
        found += zip((each[0] for each in part), *(column.tolist() for column in nested), strict=True)
    return sorted(found)
