"""Impossible device events are left out, legitimate overlap is kept, and idle time is explained to the last ns."""

from __future__ import annotations

from events import Event, instant, kernel, x
from hypothesis import given, settings
from hypothesis import strategies as st
from random_traces import Trace, traces
from stores import Rows, RowsOfRanks, store_over

HOST = x("host", 0, 1000)
LATER = [kernel(f"k{n}", 20 + 10 * n, 10) for n in range(5)]

REASONS: dict[str | None, list[Event]] = {
    "negative length": [HOST, kernel("odd", 10, -5)],
    "impossible length": [kernel("odd", 10, 2**60 // 1000)],
    "longer than the whole recording": [HOST, kernel("odd", 10, 1001)],
    "ends after the recording": [HOST, instant("Record Window End", 1100), kernel("odd", 1090, 20)],
    "overlaps later work on its own stream": [HOST, kernel("odd", 10, 500), *LATER],
}


def test_impossible_events_are_set_aside_with_a_reason(rows_of_ranks: RowsOfRanks) -> None:
    found = rows_of_ranks("device_ops", *REASONS.values())
    odd = [[(row["valid"], row["set_aside"]) for row in of_rank if row["name"] == "odd"] for of_rank in found]
    assert odd == [[(False, reason)] for reason in REASONS]
    assert {(row["valid"], row["set_aside"]) for of_rank in found for row in of_rank if row["name"] != "odd"} == {
        (True, None)
    }


LEGITIMATE = (
    [kernel(f"p{n}", 10 + 10 * n, 14) for n in range(8)],  # programmatic dependent launch
    [kernel("long", 10, 500), *[kernel(f"k{n}", 20 + 10 * n, 10, stream=8) for n in range(5)]],
    [kernel("branch", 10, 500, **{"graph node id": 3}), *LATER],
    [kernel("whole", 0, 1000)],
    [kernel("instant", 10, 0)],
    [kernel("after the host", 1500, 100)],
)


def test_legitimate_overlap_is_kept(rows_of_ranks: RowsOfRanks) -> None:
    found = rows_of_ranks("device_ops", *([HOST, *events] for events in LEGITIMATE))
    assert [{(row["valid"], row["set_aside"]) for row in of_rank} for of_rank in found] == [{(True, None)}] * 6


def test_no_sum_includes_events_that_are_set_aside(rows: Rows) -> None:
    events = [HOST, kernel("odd", 10, 500), *LATER]
    assert [(row["ts"], row["dur"]) for row in rows("device_busy", events)] == [(20_000, 50_000)]
    assert [row["kernel"] for row in rows("steps", events)] == [50_000]


@settings(max_examples=3)
@given(st.lists(traces(), min_size=1, max_size=8))
def test_busy_and_explained_idle_time_make_up_the_window(random_traces: list[Trace]) -> None:
    with store_over(*(trace.events for trace in random_traces)) as store:
        store.build(["gaps", "device_busy"])
        # A device's window may begin later than the recording, because the device's state before its first work may be
        # unknown.
        windows = {row["rank"]: (row["ts"], row["end"]) for row in store.rows("device_windows")}
        busy, gaps = store.rows("device_busy"), store.rows("gaps")
        causes = store.rows("gap_causes")
    for rank in {row["rank"] for row in busy}:
        stretches = sorted((row["ts"], row["end"]) for row in [*busy, *gaps] if row["rank"] == rank)
        assert [end for _, end in stretches[:-1]] == [ts for ts, _ in stretches[1:]]
        assert (stretches[0][0], stretches[-1][1]) == windows[rank]
    for gap in gaps:
        parts = sorted((part["ts"], part["end"]) for part in causes if part["gap"] == gap["id"])
        assert [end for _, end in parts[:-1]] == [ts for ts, _ in parts[1:]]
        assert (parts[0][0], parts[-1][1]) == (gap["ts"], gap["end"])
        assert gap["cause_ns"] == sum(
            part["dur"] for part in causes if (part["gap"], part["cause"]) == (gap["id"], gap["cause"])
        )
