"""The charts of a report on a few events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from builders.reports import RULE, analysed, finding, starved
from events import instant, kernel, launch, step, x
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import store_over

from perftool.engine.analysis import report_on
from perftool.engine.drawing.lanes import View, lanes_in
from perftool.engine.drawing.pictures import pictures_of
from perftool.engine.report.across_ranks import grouped
from perftool.model.pictures import Bar, Pictures
from perftool.model.report import Finding, Location


@pytest.fixture(scope="module")
def drawn() -> Iterator[Callable[..., Pictures]]:
    """Return a function that draws the charts of the run ``starved`` with the given findings."""
    with store_over(starved()) as store:
        report = report_on(store, (RULE,))

        def draw(*findings: Finding) -> Pictures:
            return pictures_of(store, replace(report, findings=findings))

        yield draw


def test_a_timeline_shows_the_place_of_a_finding_with_its_lanes(drawn: Callable[..., Pictures]) -> None:
    timeline = drawn(finding()).timelines[0]
    assert (timeline.mark_ts_ns, timeline.mark_dur_ns) == (10_010_000, 6_020_000)
    assert (timeline.ts_ns, timeline.dur_ns) == (10_010_000 - 3_612_000, 2 * 3_612_000 + 6_020_000)
    assert (timeline.mark_name, timeline.step) == ("next", "ProfilerStep#2")
    assert [(lane.name, lane.side, lane.rows) for lane in timeline.lanes] == [
        ("Idle, by cause", "idle", 1), ("thread 1 (python)", "host", 2), ("7", "device", 1),
    ]  # fmt: skip
    loading = [bar for bar in timeline.lanes[1].bars if bar.kind == "dataloader"]
    assert timeline.mark_ts_ns in [bar.ts_ns for bar in loading]


def test_lanes_are_cut_to_the_view_and_nested() -> None:
    events = [step(1, 0, 100), x("outer", 10, 80), x("inner", 20, 30), *launch(1, 25, 5, 40, 50)]
    with store_over(events) as store:
        host, device = lanes_in(store, View(0, 20_000, 60_000, 20_000, 50_000))[-2:]
    assert host.bars == (
        Bar(20_000, 40_000, "cpu_op", 0, "outer"), Bar(20_000, 30_000, "cpu_op", 1, "inner"),
        Bar(25_000, 5_000, "runtime", 2, "cudaLaunchKernel"),
    )  # fmt: skip
    assert device.bars == (Bar(40_000, 20_000, "kernel", 0, "k"),)


def test_slices_too_short_to_draw_are_joined_and_counted() -> None:
    events = [step(1, 0, 10_000), *(kernel("k", 1_000 + 2 * n, 1) for n in range(1_000))]
    with store_over(events) as store:
        device = next(lane for lane in lanes_in(store, View(0, 0, 10_000_000, 0, 1)) if lane.side == "device")
    assert device.bars == (Bar(1_000_000, 1_999_000, "kernel", 0, None, 1_000),)


SPANS = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), min_size=1, max_size=12)


@given(SPANS, SPANS)
@settings(max_examples=5)
def test_every_bin_of_a_strip_adds_up_to_one(kernels: list[tuple[int, int]], ops: list[tuple[int, int]]) -> None:
    events = [step(1, 0, 1_000), *(kernel("k", at, dur) for at, dur in kernels)]
    events += [x("op", at, min(dur, 1_000 - at)) for at, dur in ops]
    with store_over(events) as store:
        (strip,) = pictures_of(store, report_on(store, ())).strips
    totals = [sum(shares[at] for shares in strip.shares.values()) for at in range(240)]
    assert totals == pytest.approx([1.0] * 240, abs=0.002)


def test_a_thinned_memory_curve_keeps_the_peak() -> None:
    def reading(n: int, total: int) -> dict[str, object]:
        sizes = {"Device Type": 1, "Device Id": 0, "Addr": n, "Bytes": 1, "Total Reserved": 9_999}
        return instant("[memory]", n, **sizes, **{"Total Allocated": total})

    readings = [reading(n, 7_777 if n == 2_345 else n % 50) for n in range(5_000)]
    events = [step(1, 0, 5_000), kernel("k", 10, 20), *readings]
    _, pictures = analysed(events)
    (curve,) = pictures.memory
    assert (max(curve.allocated), curve.samples, curve.device) == (7_777, 5_000, "device 0")
    assert len(curve.ts_ns) <= 602
    assert list(curve.ts_ns) == sorted(curve.ts_ns)


def test_findings_are_grouped_across_ranks_only() -> None:
    ranks = [0, 0, 1, None, None, 1]
    findings = [finding(rank=rank) for rank in ranks]
    assert grouped(findings) == ((0, 2), (1, 5), (3,), (4,))


def test_a_single_rank_has_no_ranks_chart(drawn: Callable[..., Pictures]) -> None:
    assert drawn().ranks == ()


def test_at_most_a_dozen_timelines_are_taken(drawn: Callable[..., Pictures]) -> None:
    assert list(drawn(*[finding()] * 30).timelines) == list(range(12))


@pytest.mark.parametrize("place", [Location(), Location(ts_ns=5), Location(ts_ns=10**12, dur_ns=10)])
def test_a_finding_without_a_place_in_the_trace_has_no_timeline(
    place: Location, drawn: Callable[..., Pictures]
) -> None:
    assert drawn(finding(location=place, related=())).timelines == {}


def test_memory_is_drawn_by_kind_for_each_step_or_for_the_fullest_steps() -> None:
    def block(at: int, size: int, total: int) -> dict[str, object]:
        args = {"Device Type": 1, "Device Id": 0, "Addr": 8, "Bytes": size, "Total Allocated": total}
        return instant("[memory]", at, **args)

    steps = [step(n, 100 * n, 100) for n in range(200)]
    blocks = [event for n in range(200) for event in
              (block(100 * n + 10, n + 1, 1000 + n + 1), block(100 * n + 20, -n - 1, 1000))]  # fmt: skip
    _, pictures = analysed([*steps, *blocks, kernel("k", 10, 20)])

    (drawn,) = pictures.memory_steps
    assert (drawn.rank, drawn.device, drawn.per_column, len(drawn.steps)) == (0, "device 0", 2, 100)
    assert drawn.steps[:3] == (1, 3, 5)
    assert {kind: values[:3] for kind, values in drawn.kinds.items()} == {
        "before_recording": (1000, 1000, 1000), "temporary": (2, 4, 6),
    }  # fmt: skip
