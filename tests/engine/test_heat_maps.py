"""The heat map of who waits for whom."""

from __future__ import annotations

import pytest
from builders.cluster import Layout, Trouble, simulate
from stores import store_over

from perftool.engine.drawing.heat_maps import block_size, heat_maps


def test_neighbours_wait_for_the_slow_rank_and_the_others_for_them() -> None:
    run = simulate(Layout("tp", 4, 2, layers=2), [Trouble("device", (3,), 1.5)], steps=2)
    with store_over(*(rank.events(0.0) for rank in run.ranks)) as store:
        heat = heat_maps(store)[0]
        waits = {(row["rank"], row["last_rank"]): row for row in store.rows("waits_for") if row["exposed_ns"] > 100_000}
        arrivals = {(row["rank"], row["role"]): row["exposed_ns"] for row in store.rows("arrivals")}

    assert (heat.name, heat.columns) == ("waits", ("0", "1", "2", "3"))
    assert {(row, column) for row in range(4) for column in range(4) if heat.shares[row][column] > 0.02} == set(waits)
    assert set(waits) == {(0, 2), (1, 3), (2, 3)}
    assert all(row["exposed_ns"] <= arrivals[row["rank"], row["role"]] for row in waits.values())


def test_nobody_waits_in_a_healthy_run() -> None:
    run = simulate(Layout("tp", 4, 2, layers=2), steps=2)
    with store_over(*(rank.events(0.0) for rank in run.ranks)) as store:
        assert heat_maps(store) == ()


@pytest.mark.parametrize(("ranks", "size"), [(8, 1), (64, 1), (65, 2), (256, 4), (1_024, 16)])
def test_many_ranks_share_rows(ranks: int, size: int) -> None:
    assert block_size(range(ranks)) == size
