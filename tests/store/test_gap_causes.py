"""Which thread a gap is counted for: the one that feeds the device, and no other."""

from __future__ import annotations

from itertools import pairwise

from events import Event, kernel, launch, loader, meta, runtime, step, x
from hypothesis import given, settings
from random_traces import Trace, traces
from stores import Rows, store_over

# The device works in the first and the last 100 us of a step of 1 ms, fed by thread 1.
FED = [step(1, 0, 1000), *launch(1, 0, 10, 20, 80, "a"), *launch(2, 880, 10, 900, 100, "b")]


def causes(rows: Rows, *events: Event) -> list[tuple[str, float]]:
    """Cause and length in us of each part of the gap in the middle of the step, up to the submission."""
    parts = rows("gap_causes", [*FED, *events])
    return [(part["cause"], part["dur"] / 1000) for part in parts if 100_000 <= part["ts"] < 880_000]


def test_silence_before_an_op_lies_between_ops(rows: Rows) -> None:
    assert causes(rows, x("aten::add", 500, 380)) == [("between_ops", 400), ("framework_op", 380)]


def test_silence_before_a_backward_function_is_the_autograd_engine(rows: Rows) -> None:
    backward = x("autograd::engine::evaluate_function: MulBackward0", 500, 380, tid=2)
    fed = [runtime("cudaLaunchKernel", at, 5, 10 + at, tid=2) for at in (600, 700)]
    work = [kernel("c", at + 300, 1, 10 + at, stream=9) for at in (600, 700)]

    assert causes(rows, backward, *fed, *work)[:2] == [("autograd", 400), ("framework_op", 100)]


def test_a_device_that_works_before_the_steps_only_is_idle_in_all_of_them(rows: Rows) -> None:
    events = [x("aten::a", 0, 40), *launch(1, 0, 10, 20, 10), step(1, 100, 50), x("aten::b", 100, 50)]
    parts, summary, (rank,) = (rows(table, events) for table in ("gap_causes", "summary", "ranks"))

    assert [(part["cause"], part["ts"], part["dur"]) for part in parts] == [("framework_op", 100_000, 50_000)]
    assert {row["metric"]: row["value"] for row in summary}["device_idle_ratio"] == 1
    assert (rank["busy_ns"], rank["idle_ns"]) == (0, 50_000)


def test_neighbouring_parts_of_one_cause_are_one(rows: Rows) -> None:
    # The worker's ops cut the feeding thread's op into three stretches of time.
    worker = [x("aten::stack", 300, 50, tid=3), x("aten::stack", 400, 50, tid=3)]

    assert causes(rows, x("aten::add", 100, 780), *worker) == [("framework_op", 780)]


def test_a_loader_worker_is_not_what_the_device_waits_for(rows: Rows) -> None:
    worker = [meta("thread_name", "pt_data_worker", tid=3), x("aten::stack", 100, 780, tid=3), loader(200, 600, tid=3)]

    assert causes(rows, *worker) == [("between_ops", 780)]


def test_a_wait_for_the_loader_on_the_feeding_thread_is(rows: Rows) -> None:
    wait = loader(100, 700, "_MultiProcessingDataLoaderIter")

    assert causes(rows, wait) == [("dataloader", 700), ("between_ops", 80)]


def test_python_of_another_thread_says_nothing_about_the_gap(rows: Rows) -> None:
    other = x("queue.py(10): get", 100, 780, "python_function", tid=4)

    assert causes(rows, other) == [("between_ops", 780)]


def test_a_thread_that_launches_counts_beside_the_thread_of_the_steps(rows: Rows) -> None:
    # A launch thread: its call is what the device waits for, though the main thread runs an op meanwhile.
    submit = runtime("cudaGraphLaunch", 300, 400, 3, tid=5)
    work = kernel("graph", 950, 10, 3, stream=9)

    assert causes(rows, x("aten::add", 100, 780), submit, work) == [
        ("framework_op", 200), ("launch_call", 400), ("framework_op", 180),
    ]  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(traces())
def test_parts_fill_their_gap_and_no_two_neighbours_share_a_cause(trace: Trace) -> None:
    with store_over(trace.events) as store:
        gaps = {gap["id"]: gap for gap in store.rows("gaps")}
        parts = store.rows("gap_causes")

    by_gap = {number: [part for part in parts if part["gap"] == number] for number in gaps}
    for number, gap in gaps.items():
        edges = [part["ts"] for part in by_gap[number]] + [gap["end"]]
        assert edges[0] == gap["ts"]
        assert [part["end"] for part in by_gap[number]] == edges[1:]
        causes_in_order = [part["cause"] for part in by_gap[number]]
        assert all(one != other for one, other in pairwise(causes_in_order))
    assert sum(len(found) for found in by_gap.values()) == len(parts)
