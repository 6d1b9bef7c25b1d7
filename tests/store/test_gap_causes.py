"""The cause of a gap comes only from the thread that feeds the device."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from events import Event, kernel, launch, loader, meta, runtime, step, x
from hypothesis import given, settings
from random_traces import Trace, traces
from stores import Rows, RowsOfRanks, store_over

# Thread 1 feeds the device, which works in the first and in the last 100 us of a step of 1 ms.
FED = [step(1, 0, 1000), *launch(1, 0, 10, 20, 80, "a"), *launch(2, 880, 10, 900, 100, "b")]


def causes(rows: Rows, *events: Event) -> list[tuple[str, float]]:
    return in_the_middle(rows("gap_causes", [*FED, *events]))


def in_the_middle(parts: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return the cause and the length in us of each part of the gap in the middle of the step, up to the submission."""
    return [(part["cause"], part["dur"] / 1000) for part in parts if 100_000 <= part["ts"] < 880_000]


def test_silence_before_an_op_is_between_ops(rows: Rows) -> None:
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
    # The worker's ops split the feeding thread's op into stretches, which must be merged.
    worker = [x("aten::stack", 300, 50, tid=3), x("aten::stack", 400, 50, tid=3)]

    assert causes(rows, x("aten::add", 100, 780), *worker) == [("framework_op", 780)]


def test_a_loader_worker_is_not_a_cause_of_idle_time(rows: Rows) -> None:
    worker = [meta("thread_name", "pt_data_worker", tid=3), x("aten::stack", 100, 780, tid=3), loader(200, 600, tid=3)]

    assert causes(rows, *worker) == [("between_ops", 780)]


def test_a_wait_for_the_loader_on_the_feeding_thread_is_a_cause(rows: Rows) -> None:
    wait = loader(100, 700, "_MultiProcessingDataLoaderIter")

    assert causes(rows, wait) == [("dataloader", 700), ("between_ops", 80)]


def test_python_of_another_thread_says_nothing_about_the_gap(rows: Rows) -> None:
    other = x("queue.py(10): get", 100, 780, "python_function", tid=4)

    assert causes(rows, other) == [("between_ops", 780)]


def test_a_launching_thread_counts_like_the_thread_of_the_steps(rows: Rows) -> None:
    # The device waits for the call on a launch thread, although the main thread runs an op at the same time.
    submit = runtime("cudaGraphLaunch", 300, 400, 3, tid=5)
    work = kernel("graph", 950, 10, 3, stream=9)

    assert causes(rows, x("aten::add", 100, 780), submit, work) == [
        ("framework_op", 200), ("launch_call", 400), ("framework_op", 180),
    ]  # fmt: skip


@settings(max_examples=6)
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


def frame(name: str, ts: float, dur: float) -> Event:
    return x(name, ts, dur, "python_function")


def test_each_kind_of_python_wait_has_its_own_cause_despite_its_caller(rows_of_ranks: RowsOfRanks) -> None:
    around = frame("train.py(3): main", 100, 780)
    waits = {
        "<built-in method acquire of _thread.lock object at 0x7f00>": "lock",
        "<built-in method get of _queue.SimpleQueue object at 0x7f00>": "queue",
        "vllm/distributed/device_communicators/shm_broadcast.py(400): acquire_read": "queue",
        "<built-in method poll of select.epoll object at 0x7f00>": "pipe",
        "<built-in function sleep>": "sleep",
        "<built-in method run_backward of torch._C._EngineBase object at 0x7f00>": "autograd",
        "torch/profiler/profiler.py(848): _transit_action": "profiler",
    }
    found = rows_of_ranks("gap_causes", *([*FED, around, frame(name, 300, 200)] for name in waits))
    assert {name: in_the_middle(parts) for name, parts in zip(waits, found, strict=True)} == {
        name: [("python", 200), (cause, 200), ("python", 380)] for name, cause in waits.items()
    }


def test_a_captured_graph_keeps_the_device_idle_whatever_the_host_runs(rows: Rows) -> None:
    calls = [runtime("cudaStreamBeginCapture", 200, 5), runtime("cudaStreamEndCapture", 695, 5)]

    assert causes(rows, frame("model.py(9): forward", 100, 780), *calls) == [
        ("python", 100), ("capture", 500), ("python", 180),
    ]  # fmt: skip


def test_work_that_starts_a_millisecond_after_its_launch_is_queued(rows_of_ranks: RowsOfRanks) -> None:
    causes = {500: "launch_latency", 1500: "queued"}
    found = rows_of_ranks("gap_causes", *(
        [step(1, 0, 4000), *launch(1, 0, 10, 20, 80, "a"), *launch(2, 300, 10, 310 + pause, 100, "b")]
        for pause in causes
    ))  # fmt: skip
    for (pause, cause), parts in zip(causes.items(), found, strict=True):
        assert (cause, pause) in [(row["cause"], row["dur"] / 1000) for row in parts]


def test_every_part_has_a_proof_and_a_phase(rows: Rows) -> None:
    parts = rows("gap_causes", [*FED, frame("f.py(1): f", 100, 200), x("aten::add", 500, 380)])

    assert [(part["cause"], part["proof"], part["phase"]) for part in parts if part["ts"] >= 100_000][:3] == [
        ("python", "frame", "steady"), ("between_ops", "next event", "steady"), ("framework_op", "op", "steady"),
    ]  # fmt: skip


# Python runs without ops for 5 ms, and for 0.9 ms.
PYTHON = [
    step(1, 0, 9000), x("train.py(3): <module>", 0, 9000, "python_function"),
    x("aten::mm", 0, 1000), x("aten::mm", 6000, 2000), x("aten::mm", 8900, 100),
]  # fmt: skip
Recording = tuple[list[Event], dict[str, Any]]


def with_times(cpu_us: int, delay_us: int, *more: Event) -> Recording:
    """Return ``PYTHON`` with the times of its thread: on a core, and waiting for one."""
    thread = {"tid": 1, "name": "python", "cpu_ns": 1000 * cpu_us, "delay_ns": 1000 * delay_us}
    recorded = {"version": 1, "window": {"wall_ns": 9_000_000, "threads": [thread]}}
    return [*PYTHON, *more], {"perftoolRecording": recorded}


def test_python_is_blocked_if_its_thread_neither_runs_nor_is_ready(rows_of_ranks: RowsOfRanks) -> None:
    wait = x("<built-in function sleep>", 1000, 3000, "python_function")
    found = rows_of_ranks(
        "gap_causes", with_times(5999, 500), with_times(6000, 500), with_times(4499, 500, wait),
        with_times(4500, 500, wait),
    )  # fmt: skip
    assert [[(part["cause"], part["proof"]) for part in parts] for parts in found] == [
        # The recording shows that the thread had no core for half a millisecond. The longer of its two stretches takes
        # 5 ms.
        [("blocked", "thread"), ("python", "frame")],
        [("python", "frame")] * 2,
        # If the wait was recorded, its frame names the blocking call.
        [("sleep", "frame"), ("blocked", "thread"), ("python", "frame")],
        [("sleep", "frame"), ("python", "frame"), ("python", "frame")],
    ]


def test_long_stretches_possibly_without_a_core_have_the_cause_no_core(rows_of_ranks: RowsOfRanks) -> None:
    empty = x("aten::empty", 1000, 4000)
    found = rows_of_ranks(
        "gap_causes", with_times(6499, 2501), with_times(6500, 2500), with_times(6499, 2501, empty),
        with_times(6500, 2500, empty),
    )  # fmt: skip
    assert [[part["cause"] for part in parts] for parts in found] == [
        # In the first recording, the thread had no core for more than half of its 5 ms; in the second, for less.
        ["no_core", "python"],
        ["python", "python"],
        # The same holds for an op that only allocates.
        ["no_core", "no_core", "python"],
        ["framework_op", "python", "python"],
    ]


def test_with_a_device_its_thread_may_have_been_waiting_for_it(rows_of_ranks: RowsOfRanks) -> None:
    device = launch(7, 0, 10, 20, 80)
    found = rows_of_ranks("gap_causes", with_times(1000, 500, *device), with_times(1000, 8000, *device))
    assert all(found)
    assert not {"blocked", "no_core"} & {part["cause"] for parts in found for part in parts}


def test_a_thread_without_events_waits_for_a_collective_of_another_thread(rows: Rows) -> None:
    backward = x("<built-in method run_backward of torch._C._EngineBase>", 1000, 8000, "python_function")
    reduced = x("gloo:all_reduce", 3000, 4000, "user_annotation", tid=7)
    events = [step(1, 0, 9100), x("aten::mm", 0, 1000), backward, x("aten::mm", 9000, 100)]

    parts = rows("gap_causes", [*events, reduced])
    assert [(part["cause"], part["dur"]) for part in parts] == [
        ("autograd", 2_000_000), ("collective", 4_000_000), ("autograd", 2_000_000),
    ]  # fmt: skip
    # Recorded Python code is not a wait.
    python = x("train.py(7): prepare", 1000, 8000, "python_function")
    parts = rows("gap_causes", [event for event in events if event is not backward] + [python, reduced])
    assert {part["cause"] for part in parts} == {"python"}


def test_python_that_calls_a_collective_waits_for_the_thread_that_reduces(rows_of_ranks: RowsOfRanks) -> None:
    names = [
        "torch/distributed/distributed_c10d.py(3155): all_reduce",
        "<built-in method wait of pybind11_builtins.pybind11_detail_function_record_v1 object at 0x7f>",
    ]
    program = x("train.py(9): average_gradients", 1000, 8000, "python_function")
    reduced = x("gloo:all_reduce", 2000, 6000, "user_annotation", tid=7)
    events = [step(1, 0, 9100), x("aten::mm", 0, 1000), program, reduced, x("aten::mm", 9000, 100)]

    found = rows_of_ranks("gap_causes", *([*events, frame(name, 1500, 7000)] for name in names))
    assert [[(part["cause"], part["dur"]) for part in parts] for parts in found] == [
        [("python", 1_000_000), ("collective", 6_000_000), ("python", 1_000_000)]
    ] * 2


def test_the_shortest_annotation_around_most_idle_time_is_named(rows_of_ranks: RowsOfRanks) -> None:
    def mark(name: str, ts: float, dur: float) -> Event:
        return x(name, ts, dur, "user_annotation")

    events = [
        step(1, 0, 9100), mark("request", 0, 9000), mark("policy", 1000, 6000), mark("log", 7500, 1000),
        x("aten::mm", 0, 1000), x("aten::mm", 9000, 100),
    ]  # fmt: skip

    library = [mark("FSDP::gather", 1000, 6000), mark("FSDP::scatter", 7500, 1000)]
    found = rows_of_ranks(
        "_idle_annotations", events, events[:2] + events[3:], events[:2] + library + events[4:],
        [event for event in events if event["cat"] == "cpu_op"] + [mark("log", 1, 2)],
    )  # fmt: skip
    assert found[0] == [{"rank": 0, "cause": "between_ops", "annotation": "policy", "ns": 6_000_000}]
    assert [[row["annotation"] for row in of_rank] for of_rank in found[1:]] == [["request"], ["FSDP::…"], []]
