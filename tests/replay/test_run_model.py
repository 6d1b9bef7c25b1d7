"""Runs that follow stated rules are replayed exactly with all ranks together, both unchanged and with changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Part, meetings, step_ns

from perftool.replay.ranks.meetings import CAUSES, Less

RANKS, STEPS = 4, 3
WORK = st.tuples(*[st.integers(0, 300_000)] * len(CAUSES))
GROUPS = st.sampled_from([(0, 1, 2, 3), (0, 1), (2, 3), (1, 2), (0, 2, 3)])
# Times are rounded to a microsecond, so a shorter transfer could not be distinguished from the previous one.
PART = st.builds(Part, GROUPS, st.tuples(*[WORK] * RANKS), st.integers(3, 50).map(lambda n: 1_000 * n))
# In some parts, ranks do not wait for the collective, so a rank may keep working while a late rank delays it.
OVERLAPPED = st.builds(replace, PART, waits=st.booleans())
SKEW = st.lists(st.integers(-(10**9), 10**9), min_size=RANKS, max_size=RANKS)
ALL = tuple(range(RANKS))


def whole(parts: Sequence[Part]) -> list[Part]:
    """Return ``parts``, followed by the first part for a group of all ranks, so that all ranks meet in every step."""
    return [*parts, replace(parts[0], group=ALL)]


@settings(max_examples=15)
@given(st.lists(OVERLAPPED, min_size=1, max_size=5), SKEW)
def test_a_run_is_replayed_exactly_whatever_its_clocks(parts: list[Part], skew: list[int]) -> None:
    assert meetings(STEPS, whole(parts), skew).unchanged_ns == step_ns(RANKS, STEPS, whole(parts))


@settings(max_examples=15)
@given(st.lists(PART, min_size=1, max_size=5), SKEW, st.sampled_from(ALL), st.sampled_from(CAUSES))
def test_a_rank_without_a_cause_is_predicted_exactly(parts: list[Part], skew: list[int], rank: int, cause: str) -> None:
    at = CAUSES.index(cause)
    without = [
        replace(part, work=tuple(
            tuple(0 if (who, number) == (rank, at) else ns for number, ns in enumerate(work))
            for who, work in enumerate(part.work)
        ))
        for part in whole(parts)
    ]  # fmt: skip
    found = meetings(STEPS, whole(parts), skew).predict([Less(rank, cause, 0.0)])
    assert found == step_ns(RANKS, STEPS, without)


@settings(max_examples=15)
@given(st.lists(PART, min_size=1, max_size=5), SKEW, st.data())
def test_a_quicker_link_is_predicted_exactly(parts: list[Part], skew: list[int], data: st.DataObject) -> None:
    parts = whole(parts)
    chosen = data.draw(st.integers(0, len(parts) - 1))
    change = Less(parts[chosen].group[0], "link", 0.5, group=str(chosen))
    quicker = [replace(part, wire=part.wire // 2) if n == chosen else part for n, part in enumerate(parts)]
    found = meetings(STEPS, parts, skew).predict([change])
    assert found == pytest.approx(step_ns(RANKS, STEPS, quicker), abs=3)


CHANGE = st.builds(
    Less, st.sampled_from(ALL), st.sampled_from([*CAUSES, "link"]), st.sampled_from([0.0, 0.3, 0.9]),
    st.sampled_from([None, 0, 2]), st.sampled_from(["0", "1"]),
)  # fmt: skip


@settings(max_examples=15)
@given(st.lists(OVERLAPPED, min_size=1, max_size=5), SKEW, st.lists(CHANGE, max_size=4))
def test_less_work_never_takes_longer_and_larger_changes_gain_more(
    parts: list[Part], skew: list[int], changes: list[Less]
) -> None:
    made = meetings(STEPS, whole(parts), skew)
    some, all_of_them = made.predict(changes[: len(changes) // 2]), made.predict(changes)
    assert made.predict([replace(change, factor=(change.factor or 0.0) / 2) for change in changes]) <= all_of_them
    assert all_of_them <= some <= made.unchanged_ns


@settings(max_examples=15)
@given(st.lists(PART, min_size=1, max_size=5), SKEW, st.sampled_from(ALL), st.integers(1, 500_000))
def test_a_rank_that_does_what_the_median_rank_does_is_predicted_exactly(
    parts: list[Part], skew: list[int], late: int, more: int
) -> None:
    # All ranks do the same, except that one computes longer before the first collective.
    alike = [replace(part, group=ALL, work=(part.work[0],) * RANKS) for part in parts]
    longer = tuple((ns + more * (at == 0)) for at, ns in enumerate(alike[0].work[0]))
    work = tuple(longer if rank == late else alike[0].work[0] for rank in ALL)
    found = meetings(STEPS, [replace(alike[0], work=work), *alike[1:]], skew).predict([Less(late, "own", None)])
    assert found == pytest.approx(step_ns(RANKS, STEPS, alike), abs=3)


@pytest.mark.parametrize(("share", "predicted"), [(0.0, 180_000), (0.6, 348_000), (2.0, 580_000)])
def test_a_step_is_never_shorter_than_its_hosts_need(share: float, predicted: int) -> None:
    work = ((500_000, 0, 0, 0, 0), *[(100_000, 0, 0, 0, 0)] * 3)
    made = meetings(STEPS, [Part(ALL, work, 50_000)], [0] * RANKS, host_share=share)
    assert made.unchanged_ns == 580_000
    assert made.predict([Less(0, "compute", 0.2)]) == predicted
