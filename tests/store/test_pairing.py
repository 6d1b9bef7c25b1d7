"""Pairs of begin and end events become slices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perftool.store.pairing import pair

Call = tuple[str, str | None]
"""Phase and name; the events are one nanosecond apart, on one track."""


def slices(*calls: Call) -> tuple[dict[int, int], int, int]:
    """Return the end of each begin (by index), the number of unmatched ends, and the number of unmatched begins."""
    found = pair((at, "track", phase, name, at) for at, (phase, name) in enumerate(calls))
    return dict(zip(found.begin, found.end_ns, strict=True)), found.unmatched_ends, found.unmatched_begins


B, E = "B", "E"


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], ({}, 0, 0)),
        ([(B, "a"), (E, "a")], ({0: 1}, 0, 0)),
        ([(B, "a"), (B, "b"), (E, "b"), (E, "a")], ({0: 3, 1: 2}, 0, 0)),
        ([(B, "a"), (B, "a"), (E, "a"), (E, "a")], ({0: 3, 1: 2}, 0, 0)),
        ([(B, "a"), (B, "b"), (E, None), (E, None)], ({0: 3, 1: 2}, 0, 0)),
        ([(E, "a")], ({}, 1, 0)),
        ([(E, None)], ({}, 1, 0)),
        ([(B, "a"), (E, "b"), (E, "a")], ({0: 2}, 1, 0)),
        ([(B, "a"), (B, "b"), (E, "a"), (B, "c")], ({0: 2, 1: 2, 3: 3}, 0, 2)),
        ([(B, "a"), (B, "b")], ({0: 1, 1: 1}, 0, 2)),
    ],
)
def test_pairs(calls: list[Call], expected: tuple[dict[int, int], int, int]) -> None:
    assert slices(*calls) == expected


def test_unmatched_ends_take_linear_time() -> None:
    """Comparing each end with every open begin would take hours."""
    count = 200_000
    assert slices(*[(B, "a")] * count, *[(E, "b")] * count)[1:] == (count, count)


def test_tracks_do_not_mix() -> None:
    found = pair([(0, "x", B, "a", 0), (1, "y", E, "a", 1), (2, "x", E, "a", 2)])
    assert (found.begin, found.end_ns, found.unmatched_ends, found.unmatched_begins) == ([0], [2], 1, 0)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("BE"), st.sampled_from(["a", "b", None])), max_size=15))
def test_every_begin_becomes_one_slice_and_every_end_is_used_or_counted(calls: list[Call]) -> None:
    found, ends, begins = slices(*calls)
    assert sorted(found) == [at for at, (phase, _) in enumerate(calls) if phase == B]
    assert all(begin <= end < len(calls) for begin, end in found.items())
    assert len(found) - begins == sum(phase == E for phase, _ in calls) - ends
    for begin, end in found.items():
        assert not any(begin < other < end < last for other, last in found.items())
