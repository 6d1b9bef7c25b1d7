"""The offsets between the clocks of ranks, from the ends of shared collectives, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events import Event, kernel, step
from hypothesis import given
from hypothesis import strategies as st

from perftool.store.clocks import Edge, Offset, align
from perftool.store.trace_store import TraceStore

Store = Callable[..., TraceStore]
MS = 1_000_000


def collective(name: str, ts: float, dur: float, group: str = "0", members: str | None = None, size: int = 8) -> Event:
    known = {"Collective name": name, "Process Group Name": group, "In msg nelems": size, "dtype": "Float"}
    return kernel(f"nccl_{name}", ts, dur, **known, **({"Process Group Ranks": members} if members else {}))


def clocks(store: TraceStore) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in store.rows("clocks")]


def waits(store: TraceStore) -> list[tuple[Any, ...]]:
    return [
        (row["rank"], row["step"], row["waited_ns"], row["collectives"], row["last"]) for row in store.rows("waits")
    ]


# PyTorch shortens a list of more than thirty ranks in this way.
MANY = f"[{', '.join(map(str, range(29)))}, ..., 63]"


def test_the_stated_size_of_a_group_counts_if_its_list_of_ranks_is_cut(store: Store) -> None:
    for size in ({"Group size": 64}, {"Process Group Ranks": str(list(range(64)))}):
        gather = kernel("ncclDevKernel_AllGather", 100, 100, **{
            "Collective name": "_allgather_base", "Process Group Name": "0", "Process Group Ranks": MANY,
            "In msg nelems": 1000, "dtype": "Float", **size,
        })  # fmt: skip
        opened = store(*([step(1, 0, 1000), gather] for _ in range(2)))
        (row,) = opened.rows("bandwidths")
        # 64 times 4,000 bytes in 100 us, although only two ranks are recorded.
        assert (row["members"], row["algorithm_bandwidth"]) == (64, 2.56e9)
        # Tables keep the short list. If every rank repeated the full list, tables would grow with the square
        # of the number of ranks.
        assert {row["members"] for row in opened.rows("collectives")} == {MANY}
        assert {row["group_size"] for row in opened.rows("collectives")} == {64}


def test_lists_of_more_than_thirty_ranks_are_shortened_as_pytorch_does(store: Store) -> None:
    for count, listed in ((30, str(list(range(30)))), (31, f"{str(list(range(29)))[:-1]}, ..., 30]")):
        for written in (str(list(range(count))), str(list(range(count))).replace(" ", "")):
            (row,) = store([step(1, 0, 1000), collective("allreduce", 100, 50, members=written)]).rows("collectives")
            assert row["members"].replace(" ", "") == listed.replace(" ", "")


def test_the_offset_is_the_median_of_the_ends(store: Store) -> None:
    first = [step(1, 0, 1000), *(collective("allreduce", at, 50) for at in (100, 200, 300, 400, 500))]
    # The other clock is 100 us ahead. One end is far off, and two ends are off by 2 us.
    other = [step(1, 100, 1000), *(collective("allreduce", at, 50) for at in (200, 302, 400, 502, 640))]

    assert clocks(store(first, other)) == [(0, 0, 5, 0), (1, -102_000, 5, 2000)]


def test_ranks_without_a_common_collective_have_no_offset(store: Store) -> None:
    opened = store(
        [step(1, 0, 1000), collective("allreduce", 100, 50)],
        [step(1, 0, 1000), collective("allreduce", 100, 50)],
        [step(1, 0, 1000), collective("allreduce", 100, 50, group="other")],
        [step(1, 0, 1000)],
    )
    assert clocks(opened) == [(0, 0, 1, 0), (1, 0, 1, 0), (2, None, 0, None), (3, None, 0, None)]


def test_groups_that_share_a_rank_are_chained(store: Store) -> None:
    opened = store(
        [step(1, 0, 1000), collective("allreduce", 100, 50, "a", "[0, 1]")],
        [step(1, 10, 1000), collective("allreduce", 110, 50, "a", "[0, 1]"),
         collective("allreduce", 210, 50, "b", "[1, 2]")],
        [step(1, 30, 1000), collective("allreduce", 230, 50, "b", "[1, 2]")],
    )  # fmt: skip
    assert clocks(opened) == [(0, 0, 1, 0), (1, -10_000, 1, 0), (2, -30_000, 1, 0)]


def test_an_extra_call_on_one_rank_matches_nothing(store: Store) -> None:
    one = [step(1, 0, 1000), collective("allreduce", 100, 50)]
    two = [step(1, 0, 1000), collective("allreduce", 100, 50), collective("allreduce", 200, 50)]

    assert store(one, two).rows("_collective_matches") == []


def test_a_broadcast_gives_no_clock(store: Store) -> None:
    # The root of a broadcast may leave before the others arrive.
    opened = store(
        [step(1, 0, 1000), collective("broadcast", 100, 10)], [step(1, 0, 1000), collective("broadcast", 150, 50)]
    )
    assert clocks(opened) == [(0, None, 0, None), (1, None, 0, None)]


def test_sends_and_receives_are_not_matched(store: Store) -> None:
    events = [step(1, 0, 1000), kernel("ncclDevKernel_SendRecv", 100, 50)]
    assert store(events, events).rows("_collective_matches") == []


def test_the_last_rank_waits_least(store: Store) -> None:
    early = [step(1, 0, 1000), collective("allreduce", 100, 200), collective("allreduce", 500, 20)]
    # The late rank's clock is 1 ms ahead, but durations do not depend on clocks.
    late = [step(1, 1000, 1000), collective("allreduce", 1260, 40), collective("allreduce", 1490, 30)]

    assert waits(store(early, late)) == [(0, 1, 160_000, 2, 1), (1, 1, 10_000, 2, 1)]


def test_collectives_that_do_not_overlap_do_not_match(store: Store) -> None:
    matched = (100, 200, 300)
    one = [step(1, 0, 1000), *(collective("allreduce", at, 50) for at in matched), collective("allgather", 500, 10)]
    other = [step(1, 0, 1000), *(collective("allreduce", at, 50) for at in matched), collective("allgather", 700, 90)]

    # The all-gathers do not count, because they cannot belong to the same collective.
    assert waits(store(one, other)) == [(0, 1, 0, 3, 3), (1, 1, 0, 3, 0)]


def test_a_recording_without_steps_counts_as_one_step(store: Store) -> None:
    ops = [{**step(1, 0, 1000), "name": "run", "cat": "cpu_op"}]
    opened = store([*ops, collective("allreduce", 100, 300)], [*ops, collective("allreduce", 300, 100)])
    assert waits(opened) == [(0, None, 200_000, 1, 0), (1, None, 0, 1, 1)]


@given(st.dictionaries(st.integers(0, 30), st.integers(-(10**9), 10**9), min_size=2, max_size=12), st.randoms())
def test_any_tree_of_groups_gives_every_clock_back(ahead: dict[int, int], chance: Any) -> None:
    ranks = sorted(ahead)
    edges = []
    for at, rank in enumerate(ranks[1:], 1):
        anchor = ranks[chance.randrange(at)]
        edges.append(Edge(anchor, rank, ahead[anchor] - ahead[rank], matches=3, spread_ns=1))
    chance.shuffle(edges)

    assert [(one.rank, one.offset_ns) for one in align(edges)] == [
        (rank, ahead[ranks[0]] - ahead[rank]) for rank in ranks
    ]


def test_the_steadiest_chain_counts() -> None:
    edges = [Edge(0, 2, 7, matches=9, spread_ns=50), Edge(0, 1, 10, matches=4, spread_ns=1), Edge(1, 2, -5, 2, 1)]
    assert align(edges) == [Offset(0, 0, 9, 0), Offset(1, 10, 4, 1), Offset(2, 5, 2, 2)]


def test_without_edges_there_are_no_offsets() -> None:
    assert align([]) == []
