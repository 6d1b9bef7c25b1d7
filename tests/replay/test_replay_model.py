"""Which recordings can be replayed."""

from __future__ import annotations

import pytest
from events import Event, kernel, loader, memcpy, runtime, step, x
from stores import store_over

from perftool.replay.changes import Change
from perftool.replay.model import Model, model_of

LONG = 1_000.0


def model(*events: Event) -> Model | str:
    with store_over(list(events)) as store:
        return model_of(store, 0)


def whole(*events: Event) -> Model:
    found = model(*events)
    assert isinstance(found, Model), found
    return found


def launched(number: int, ts: float, start: float, dur: float, **args: object) -> list[Event]:
    """Return a launch of 5 us and its kernel."""
    return [runtime("cudaLaunchKernel", ts, 5, number), kernel("k", start, dur, number, **args)]


def steps_of(body: list[Event], count: int = 4, length: float = LONG) -> list[Event]:
    """Return ``count`` equal steps of ``length`` us."""
    events: list[Event] = []
    for number in range(count):
        events.append(step(number, number * length, length))
        for event in body:
            args = dict(event.get("args", {}))
            if "correlation" in args:
                args["correlation"] += 1_000 * number
            events.append({**event, "ts": event["ts"] + number * length, "args": args})
    return events


def test_host_bound_steps_take_what_the_host_takes() -> None:
    found = whole(*steps_of(launched(1, 100, 108, 50)))
    assert (found.measured_ns, found.replayed_ns, found.steps, found.why_not) == (1_000_000, 1_000_000, 3, None)


def test_a_shorter_kernel_gains_nothing_if_the_host_is_the_limit() -> None:
    found = whole(*steps_of(launched(1, 100, 108, 50)))
    task = found.graph.recording.tasks.id.tolist()
    assert found.predict([Change("shorten", number, factor=0.5) for number in task]).step_ns == 1_000_000


def test_a_host_that_runs_ahead_hides_its_time_only_until_its_lead_is_used_up() -> None:
    # The host needs 1,000 us and the device 1,100 us, so the device bounds the step. With faster kernels, the host
    # would.
    events = [step(number, number * LONG, LONG) for number in range(4)]
    for number in range(4):
        events += launched(number, number * LONG + 100, 108 + number * 1_100, 1_100)
    found = whole(*events)
    assert found.why_not is None
    changes = [Change("shorten", number, factor=0.5) for number in found.graph.recording.tasks.id.tolist()]
    assert found.replayed_ns == 1_100_000
    assert found.predict(changes).step_ns == 1_000_000


def test_workers_fetch_beside_the_step_but_must_keep_up() -> None:
    found = whole(*steps_of([loader(10, 600), *launched(1, 700, 708, 50)]))
    loads = [(10_000 + number * 1_000_000, 610_000 + number * 1_000_000) for number in range(4)]
    base = found.graph.recording.begin % 1_000_000

    def without(parallel: int) -> int:
        track = next(iter(found.graph.recording.tracks))
        return found.predict(
            [Change("prefetch", -1, track, ts + base, end + base, parallel=parallel) for ts, end in loads]
        ).step_ns

    assert (without(4), without(1)) == (400_000, 600_000)


def test_a_postponed_read_lets_the_host_continue() -> None:
    body = [
        *launched(1, 100, 108, 500),
        x("aten::item", 110, 520),
        runtime("cudaMemcpyAsync", 112, 5, 2), memcpy("Memcpy DtoH (Device -> Pageable)", 608, 2, 2),
        runtime("cudaStreamSynchronize", 120, 500),
    ]  # fmt: skip
    found = whole(*steps_of(body))
    track = next(iter(found.graph.recording.tracks))
    begin = found.graph.recording.begin
    reads = [
        Change("detach", -1, track, begin + n * 1_000_000 + 110_000, begin + n * 1_000_000 + 630_000) for n in range(3)
    ]
    assert found.why_not is None
    # The call takes 5 us like other calls, and its wait of 500 us disappears.
    assert found.predict(reads).step_ns == 505_000


def test_a_collective_on_its_own_stream_waits_for_compute_and_compute_for_it() -> None:
    body = [
        *launched(1, 100, 108, 300),
        runtime("cudaStreamWaitEvent", 110, 2),
        runtime("cudaLaunchKernel", 114, 5, 2), kernel("ncclDevKernel_AllReduce_Sum", 410, 200, 2, stream=9),
        runtime("cudaStreamWaitEvent", 122, 2),
        *launched(3, 126, 612, 100),
        runtime("cudaDeviceSynchronize", 140, 580),
    ]  # fmt: skip
    found = whole(*steps_of(body))
    compute = [
        number
        for number, lane in zip(
            found.graph.recording.tasks.id.tolist(), found.graph.recording.tasks.lane.tolist(), strict=True
        )
        if lane == found.graph.recording.tasks.lane[0]
    ]
    assert found.why_not is None
    assert found.replayed_ns == 1_000_000
    # The kernels take 400 us per step in total and alternate with the collective. At half their length, they save 200
    # of 1,000 us.
    assert found.predict([Change("shorten", task, factor=0.5) for task in compute]).step_ns == 800_000


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (
            steps_of([kernel("k", 100, 400), kernel("k", 700, 100), *launched(1, 900, 910, 50)]),
            "the trace does not show what launched 90.9 % of the device work",
        ),
        (
            steps_of(launched(1, 500, 100, 50)),
            "work seems to start before its launch, so the clocks of host and device differ",
        ),
        (
            steps_of([*launched(1, 100, 108, 50), runtime("cudaDeviceSynchronize", 200, 700)]),
            "the unchanged replay takes 400 us for a step that took 1.00 ms:"
            " the trace does not show what the rest was spent on",
        ),
        (
            steps_of([*launched(1, 100, 800, 100), runtime("cudaDeviceSynchronize", 200, 800)]),
            "the unchanged replay takes 355 us for a step that took 1.00 ms: submitted work does not start for up to "
            "695 us, and the trace does not show what it waits for",
        ),
        (
            [x("aten::mm", 0, 10), *launched(1, 2, 500, 100), runtime("cudaDeviceSynchronize", 10, 590)],
            "the unchanged replay takes 157 us for a step that took 600 us: its first work starts 493 us after it was"
            " submitted; the recording does not show what the device did until then",
        ),
    ],
)  # fmt: skip
def test_one_sentence_says_why_there_is_no_prediction(events: list[Event], why: str) -> None:
    assert whole(*events).why_not == why


BODY = launched(1, 100, 108, 50)


@pytest.mark.parametrize(
    ("events", "steps", "measured_ns"),
    [
        (steps_of(BODY, count=1), 1, 1_000_000),
        (steps_of(BODY, count=2), 2, 1_000_000),
        # At most three steps are replayed, and truncated steps never count.
        (steps_of(BODY, count=40), 3, 1_000_000),
        # Without steps, the whole recording is replayed once.
        ([x("aten::mm", 0, 400), *BODY, x("aten::mm", 500, 300)], 1, 800_000),
        # Only steps, without any device work.
        ([step(n, n * LONG, LONG) for n in range(4)], 3, 1_000_000),
    ],
)  # fmt: skip
def test_recordings_with_few_or_partial_steps_are_replayed(events: list[Event], steps: int, measured_ns: int) -> None:
    found = whole(*events)
    assert (found.steps, found.measured_ns, found.replayed_ns, found.why_not) == (steps, measured_ns, measured_ns, None)


def test_work_without_launches_gives_no_prediction() -> None:
    found = whole(*steps_of([kernel("k", 100, 400), kernel("k", 700, 100)]))
    assert found.why_not == "the trace does not show what launched 100.0 % of the device work"


@pytest.mark.parametrize("events", [[], [kernel("k", 0, 10)]])
def test_an_empty_replay_gives_a_sentence_or_no_prediction(events: list[Event]) -> None:
    found = model(*events)
    assert isinstance(found, str) or found.why_not is not None


def test_a_note_says_that_only_part_of_the_work_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [*launched(1, 100, 108, 50), *launched(2, 200, 208, 50)]
    monkeypatch.setattr("perftool.replay.model._MOST_TASKS", 4)
    # With at most four tasks, only one of the three steps is replayed.
    assert whole(*steps_of(two)).steps == 1
    monkeypatch.setattr("perftool.replay.model._MOST_TASKS", 1)
    assert model(*steps_of(two)) == "a step has 2 kernels, copies and fills, more than the 1 that a replay allows"
