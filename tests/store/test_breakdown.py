"""Compares the exclusive breakdown of steps with two other ways to compute it."""

from __future__ import annotations

import importlib.util
import logging

import pytest
from events import Event, kernel, launch, memcpy, runtime, step, x
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from random_traces import Trace, Work, traces
from stores import Rows, store_over

from perftool.model.report import BREAKDOWN
from perftool.store.trace_store import TraceStore


def launched_inside(trace: Trace) -> list[list[Work]]:
    return [[w for w in trace.work if w.call and begin <= w.call[0] and w.call[1] <= end] for begin, end in trace.steps]


def outlasts(works: list[Work], later: list[list[Work]]) -> list[Work]:
    """Return the ``works`` of a step that end after all work of the next step, if that has about as many launches."""
    following = next(filter(None, later), [])
    comparable = following and 2 * len(following) >= len(works)
    return [work for work in works if comparable and work.end > max(other.end for other in following)]


def step_bounds(trace: Trace) -> list[tuple[int, int]]:
    """Return the bounds of each step. A step lasts until the work launched in it is done, and the next step starts
    there. Work that outlasts the next step's work does not extend its own step.
    """
    inside = launched_inside(trace)
    if not any(inside):
        return trace.steps
    reached = trace.steps[0][0]
    if inside[0]:
        first = min(work.ts for work in inside[0])
        launched = [work for group in inside for work in group]
        reached = max([reached, *(w.end for w in trace.work if w not in launched and w.end < first)])
    bounds = []
    for number, ((begin, end), works) in enumerate(zip(trace.steps, inside, strict=True)):
        start = max(reached, begin)
        late = outlasts(works, inside[number + 1 :])
        reached = max([end, start, *(work.end for work in works if work not in late)])
        bounds.append((start, reached))
    return bounds


def naive_breakdown(trace: Trace) -> list[dict[str, int]]:
    """Return the breakdown by the first class of ``BREAKDOWN`` that is active in each microsecond."""
    intervals = [*trace.host, *((work.kind, work.ts, work.end) for work in trace.work)]
    steps = []
    for begin, end in step_bounds(trace):
        parts = dict.fromkeys(BREAKDOWN, 0)
        for at in range(begin, end):
            active = {kind for kind, start, stop in intervals if start <= at < stop}
            parts[next(part for part in BREAKDOWN if part in active or part == "other")] += 1000
        steps.append(parts)
    return steps


def breakdowns(store: TraceStore) -> dict[int, list[dict[str, int]]]:
    found: dict[int, list[dict[str, int]]] = {}
    for row in store.rows("steps"):
        parts = {part: row[part] for part in BREAKDOWN}
        assert sum(parts.values()) == row["dur"] == row["end"] - row["ts"]
        found.setdefault(row["rank"], []).append(parts)
    return found


@settings(max_examples=3, phases=(Phase.generate,))
@given(st.lists(traces(), min_size=5, max_size=12))
def test_the_breakdown_matches_a_naive_sweep(random_traces: list[Trace]) -> None:
    with store_over(*(trace.events for trace in random_traces)) as store:
        found = breakdowns(store)
        set_aside = store.select("SELECT count(*) AS n FROM _device_work WHERE set_aside IS NOT NULL")
    assert set_aside == [{"n": 0}]
    assert found == {rank: naive_breakdown(trace) for rank, trace in enumerate(random_traces)}


PLUGIN = importlib.util.find_spec("torch_tb_profiler")


def plugin_breakdown(trace: Trace) -> list[dict[str, int]] | None:
    """Return the breakdown by PyTorch's TensorBoard plugin, in ns, without steps cut off by the recording.

    Return None where the plugin contradicts itself: if the parts cover the steps completely, it starts over, and the
    parts add up to more than the step. Also return None where work ends after the next step's work, because the plugin
    lets such work extend its own step.
    """
    inside = launched_inside(trace)
    if any(outlasts(works, inside[number:]) for number, works in enumerate(inside, 1)):
        return None
    from torch_tb_profiler.profiler.data import RunProfileData

    logging.getLogger("pytorch_profiler").setLevel(logging.CRITICAL)
    profile = RunProfileData.from_json("worker", "span", {"schemaVersion": 1, "traceEvents": trace.events})
    steps = [[round(cost * 1000) for cost in step.costs] for step in profile.steps_costs]
    if any(sum(parts) != total for *parts, total in steps):
        return None
    return [dict(zip(BREAKDOWN, parts, strict=True)) for *parts, _ in steps]


@pytest.mark.filterwarnings("ignore:The copy keyword")
@pytest.mark.skipif(PLUGIN is None, reason="torch_tb_profiler is not installed")
@settings(max_examples=6, phases=(Phase.generate,))
@given(st.lists(traces(old=True), min_size=1, max_size=10))
def test_the_breakdown_is_the_one_of_the_tensorboard_plugin(random_traces: list[Trace]) -> None:
    with store_over(*(trace.events for trace in random_traces)) as store:
        found: dict[int, list[dict[str, int]]] = {}
        for row in store.rows("steps"):
            if not row["partial"]:
                found.setdefault(row["rank"], []).append({part: row[part] for part in BREAKDOWN})
    for rank, trace in enumerate(random_traces):
        expected = plugin_breakdown(trace)
        assert expected is None or found[rank] == expected


@pytest.mark.parametrize(
    ("last_op", "length", "partial"),
    [(190, 19, [False, True]), (205, 19, [False, False]), (190, 150, [False, True])],
    ids=["a last step that only began", "an op in it", "however long the recording went on"],
)
def test_without_a_device_a_last_step_without_ops_is_partial(
    rows: Rows, last_op: int, length: int, partial: list[bool]
) -> None:
    events = [step(1, 0, 200), x("a", 10, 5), x("b", last_op, 5), step(2, 200, length)]

    assert [row["partial"] for row in rows("steps", events)] == partial


def test_steps_without_any_op_are_complete(rows: Rows) -> None:
    assert [row["partial"] for row in rows("steps", [step(1, 0, 200), step(2, 200, 10)])] == [False, False]


def steps_of(*counts: int, last_op: str = "aten::zero_", unrecorded: int = 0) -> list[Event]:
    """Return steps with ``counts`` launches. Each step ends with the same op, except that the last one ends with
    ``last_op``.
    """
    events: list[Event] = []
    number = 0
    for at, count in enumerate(counts):
        events.append(step(at, 100 * at, 100))
        for place in range(count):
            number += 1
            lost = at == len(counts) - 1 and place >= count - unrecorded
            call, work = launch(number, 100 * at + 5 * place, 2, 100 * at + 5 * place + 3, 2)
            events += [call] if lost else [call, work]
        name = last_op if at == len(counts) - 1 else "aten::zero_"
        events.append(x(name, 100 * at + 90, 5))
    return events


@pytest.mark.parametrize(
    ("events", "partial"),
    [
        # Only the step before the last one did more than the others.
        (steps_of(5, 5, 5, 9, 5), False),
        # The last step has much less work, but ends like the others, so nothing is missing.
        (steps_of(10, 9, 10, 12, 6), False),
        # The last step ends differently, so the recording stopped inside it.
        (steps_of(10, 9, 10, 12, 6, last_op="aten::mm"), True),
        # Slightly less work than in the other steps proves nothing.
        (steps_of(10, 9, 10, 12, 9, last_op="aten::mm"), False),
        # All calls are recorded, but some of their work is missing: device recording stopped inside the step.
        (steps_of(10, 10, 10, 10, unrecorded=5), True),
        # None of the last step's work was recorded.
        (steps_of(10, 10, 10, 10, unrecorded=10), True),
    ],
)
def test_a_last_step_is_partial_when_the_recording_ends_inside(rows: Rows, events: list[Event], partial: bool) -> None:
    found = [row["partial"] for row in rows("steps", events)]

    assert found == [False] * (len(found) - 1) + [partial]


def test_copies_visible_only_on_the_host_are_input_copies(rows: Rows) -> None:
    """Gaudi's bridge records a call for each copy, but transfers have no lane of their own on the first Gaudi."""
    events = [step(1, 0, 100), x("aten::mm", 0, 90), x("copy_hpu_lazy_H2D", 20, 30, "hpu_op", pid=9)]
    found = {row["metric"]: row["value"] for row in rows("summary", events)}

    assert found["input_copy_ratio"] == 0.3


@pytest.mark.parametrize(
    ("late", "durs"),
    [
        # A persistent kernel, and a collective that ends in step 2: both steps end with the work after them.
        ([(0, 990)], [200, 200, 200, 200, 200]),
        ([(0, 590)], [200, 200, 200, 200, 200]),
        # Work that ends before the last work of the next step extends its own step.
        ([(0, 330)], [333, 67, 200, 200, 200]),
    ],
)  # fmt: skip
def test_work_that_outlasts_the_next_step_does_not_extend_its_own(
    rows: Rows, late: list[tuple[int, int]], durs: list[int]
) -> None:
    events: list[Event] = []
    for number in range(5):
        at = 200 * number
        events += [step(number, at, 200), x("aten::mm", at + 5, 100), *launch(number, at + 10, 2, at + 20, 150)]
    for number, end in late:
        at = 200 * number + 12
        events += [runtime("cudaLaunchKernel", at, 2, 99), kernel("late", at + 3, end - at, 99, stream=9)]

    assert [row["dur"] // 1000 for row in rows("steps", events)] == durs


def test_a_step_that_was_cut_off_after_its_first_copy_does_not_shorten_the_step_before(rows: Rows) -> None:
    events: list[Event] = []
    for number in range(4):
        at = 100 * number
        events += [step(number, at, 100), x("aten::mm", at + 5, 50)]
        for place in range(4):
            events += launch(10 * number + place, at + 10 + place, 1, 100 + at + 20 * place, 20)
    copy = [runtime("cudaMemcpyAsync", 402, 2, 99), memcpy("Memcpy HtoD (Pinned -> Device)", 405, 5, 99)]
    events += [step(4, 400, 20), x("aten::to", 401, 5), *copy]

    found = rows("steps", events)
    assert [(row["end"] // 1000, row["left_out"]) for row in found[-2:]] == [(480, None), (480, "incomplete")]
