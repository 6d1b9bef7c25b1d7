"""Annotations of a trace: findings on nested lanes, idle time and counters."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from events import Event, instant, launch, runtime, step, x
from hypothesis import given
from hypothesis import strategies as st
from stores import store_over

from perftool.engine.analysis import report_on
from perftool.engine.drawing.annotate import annotate, nested_lanes
from perftool.model.annotations import Annotations, Mark, Sample
from perftool.model.report import Finding, Gain, Location

# Two launches. The device is idle for 20 us before its first work and for 100 us between the two.
EVENTS: list[Event] = [
    step(1, 100, 300),
    *launch(1, 110, 5, 120, 50),
    x("aten::add", 180, 40),
    x("aten::mul", 220, 40),
    *launch(2, 265, 5, 270, 130),
]


def finding(code: str = "GAP101", location: Location | None = None, **changes: object) -> Finding:
    made = Finding(
        code=code, name="host-bound", severity="warning", confidence="high", subject="gap", message="it waits",
        why="because\n  of it", fix="do it", rank=0, location=location or Location(), related=(),
        evidence={"idle_ns": 7}, gain=Gain(1500, 0.25), fingerprint="f", benchmark=None,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def drawn(events: list[Event], *findings: Finding) -> tuple[Annotations, list[list[Mark]], dict[str, list[Sample]]]:
    """Draw the annotations of ``events`` and parse them into lanes and counters."""
    with store_over(events) as store:
        report = replace(report_on(store, []), findings=findings)
        made = annotate(store, report, 0)
        lanes = [list(lane.marks) for lane in made.lanes]
        return made, lanes, {counter.name: list(counter.samples) for counter in made.counters}


def test_a_finding_is_drawn_where_it_is_with_its_examples() -> None:
    example = Location(ts_ns=180_000, dur_ns=80_000, name="aten::add", step=1)
    made, lanes, _ = drawn(EVENTS, finding(location=Location(ts_ns=170_000, dur_ns=100_000), related=(example,)))
    assert [lane.name for lane in made.lanes] == ["GAP101 host-bound", "idle time by cause"]
    assert lanes[0] == [
        Mark("GAP101: it waits", 170_000, 100_000, {
            "message": "it waits", "why": "because of it", "fix": "do it", "severity": "warning",
            "gain": "up to 1.50 us per step (25.0 %)", "source": None, "confidence": "high", "subject": "gap",
            "evidence": {"idle_ns": 7}, "explain": "habana_perf_tool rule GAP101", "ts": 170_000, "dur": 100_000,
        }),
        Mark("1: aten::add", 180_000, 80_000, {"step": 1, "ts": 180_000, "dur": 80_000}),
    ]  # fmt: skip
    assert (made.view, made.select) == (
        Location(ts_ns=100_000, dur_ns=270_000), Location(ts_ns=170_000, dur_ns=100_000)
    )  # fmt: skip


def test_a_finding_about_the_whole_run_spans_the_window() -> None:
    example = Location(ts_ns=180_000, dur_ns=80_000)
    for location in (Location(), Location(ts_ns=100_000)):
        made, lanes, _ = drawn(EVENTS, finding(location=location, related=(example,)))
        assert [(mark.ts_ns, mark.dur_ns) for mark in lanes[0]] == [(100_000, 300_000), (180_000, 80_000)]
        assert (made.view, made.select) == (Location(ts_ns=100_000, dur_ns=300_000), example)


def test_findings_of_other_ranks_are_left_out() -> None:
    made, _, _ = drawn(EVENTS, finding("GAP101", rank=1), finding("CFG102", rank=None))
    assert (made.findings, made.lanes[0].name) == (1, "CFG102 host-bound")


def test_idle_time_is_drawn_without_seams() -> None:
    _, lanes, _ = drawn(EVENTS)
    assert [(mark.name, mark.ts_ns, mark.dur_ns) for mark in lanes[-1]] == [
        ("between_ops", 100_000, 10_000), ("launch_call", 110_000, 5_000), ("launch_latency", 115_000, 5_000),
        ("between_ops", 170_000, 10_000), ("framework_op", 180_000, 80_000), ("between_ops", 260_000, 5_000),
        ("launch_call", 265_000, 5_000),
    ]  # fmt: skip


def test_counters() -> None:
    memory = [
        instant(
            "[memory]", at,
            **{"Device Type": kind, "Device Id": 0, "Total Allocated": size, "Total Reserved": 90},
        )
        for at, kind, size in ((110, 1, 10), (120, 0, 3), (130, 1, 30))
    ]  # fmt: skip
    _, _, counters = drawn([*EVENTS, *memory])
    assert counters == {
        "device": [Sample(ts * 1000, {"busy": n}) for ts, n in ((100, 0), (120, 1), (170, 0), (270, 1), (400, 0))],
        "queue": [Sample(ts * 1000, {"depth": n}) for ts, n in ((110, 1), (120, 0), (265, 1), (270, 0))],
        # PyTorch does not know how much the host's allocator reserves, and records 0.
            "memory host": [Sample(120_000, {"allocated bytes": 3})],
        "memory cuda:0": [
            Sample(110_000, {"allocated bytes": 10, "reserved bytes": 90}),
            Sample(130_000, {"allocated bytes": 30, "reserved bytes": 90}),
        ],
    }  # fmt: skip


def test_work_that_begins_before_its_call_never_makes_the_queue_negative() -> None:
    late = [step(1, 0, 100), runtime("cudaLaunchKernel", 50, 5, 1), *launch(1, 50, 5, 40, 20)[1:]]
    assert [sample.values for sample in drawn(late)[2]["queue"]] == [{"depth": 0}]


def test_numbers_that_the_trace_uses_are_avoided() -> None:
    crowd = [x("a", 1, 1, pid=9001, tid=1), x("a", 1, 1, pid="Spans", tid=9003)]
    made, _, _ = drawn([*EVENTS, *crowd], finding())
    assert (made.pid, len(made.lanes)) == (9004, 2)


def test_a_trace_without_a_device_has_no_counters_and_a_window() -> None:
    made, lanes, counters = drawn([x("forward", 5, 10)], finding())
    assert (made.view, counters) == (Location(ts_ns=5_000, dur_ns=10_000), {})
    assert [(mark.ts_ns, mark.dur_ns) for mark in lanes[0]] == [(5_000, 10_000)]


def test_the_number_of_lanes_is_limited() -> None:
    places = [Location(ts_ns=100_000 + at, dur_ns=9_000 + 2 * at, name="m") for at in range(100)]
    memory = [
        instant("[memory]", 200 + device, **{"Device Type": 1, "Device Id": device, "Bytes": 5, "Total Allocated": 5})
        for device in range(70)
    ]
    made, lanes, counters = drawn([*EVENTS, *memory], finding(location=places[0], related=tuple(places[1:])))
    assert [len(lane) for lane in lanes[:-1]] == [1] * 64
    assert [lane.name for lane in made.lanes[62:]] == [
        "GAP101 host-bound (63)", "GAP101 host-bound (64; 36 more are not drawn)", "idle time by cause",
    ]  # fmt: skip
    shown = [name for name in counters if name.startswith("memory")]
    assert (len(shown), shown[-1].partition(":")[2]) == (64, "63 (6 more devices are not drawn)")


MARKS = st.builds(Mark, st.just("m"), st.integers(0, 30), st.integers(0, 12), st.just({}))


@given(st.lists(MARKS, max_size=25))
def test_marks_of_a_lane_never_overlap_in_part(marks: list[Mark]) -> None:
    lanes, _ = nested_lanes(marks)
    key = lambda mark: (mark.ts_ns, mark.dur_ns)  # noqa: E731
    assert sorted(map(key, marks)) == sorted(key(mark) for lane in lanes for mark in lane)
    for lane in lanes:
        assert lane
        assert [m.ts_ns for m in lane] == sorted(m.ts_ns for m in lane)
        for one, other in ((a, b) for at, a in enumerate(lane) for b in lane[at + 1 :]):
            end, other_end = one.ts_ns + one.dur_ns, other.ts_ns + other.dur_ns
            assert end <= other.ts_ns or other_end <= end


def test_marks_that_follow_each_other_share_a_lane() -> None:
    marks = [Mark("m", at, 10, {}) for at in range(0, 100, 10)]
    assert nested_lanes(marks) == ([marks], 0)
    assert all(a.ts_ns + a.dur_ns == b.ts_ns for a, b in pairwise(marks))
