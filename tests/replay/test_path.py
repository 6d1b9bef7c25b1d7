"""What bounds the step: the table, its sum and its chart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from events import Event, kernel, loader, memcpy, runtime, step, x
from stores import store_over

from perftool.engine.drawing.annotate import annotate
from perftool.engine.drawing.path import path_timeline
from perftool.engine.report.compose import compose
from perftool.engine.rules.evaluate import Outcome
from perftool.model.annotations import Flow
from perftool.model.report import Device
from perftool.replay.bounds import bounds_of
from perftool.replay.model import Model, model_of
from perftool.replay.path_rows import bound_shares, path_rows
from perftool.replay.tables import replayed_rows
from perftool.store.trace_store import TraceStore


def events(count: int = 4) -> list[Event]:
    """Return steps of 1 ms: 300 us for a batch, a wait for a kernel of 400 us, a copy, and an op at the end."""
    found: list[Event] = []
    for number in range(count):
        at = number * 1000
        found += [
            step(number, at, 1000), loader(at, 300), x("aten::mm", at + 300, 50),
            runtime("cudaLaunchKernel", at + 310, 5, 2 * number), kernel("gemm", at + 320, 400, 2 * number),
            x("aten::item", at + 360, 370), runtime("cudaMemcpyAsync", at + 365, 5, 2 * number + 1),
            memcpy("Memcpy DtoH (Device -> Pageable)", at + 722, 3, 2 * number + 1),
            runtime("cudaStreamSynchronize", at + 375, 352), x("aten::add", at + 800, 150),
        ]  # fmt: skip
    return found


@pytest.fixture(scope="module")
def store() -> Iterator[TraceStore]:
    with store_over(events(), replay=replayed_rows) as made:
        yield made


def whole(store: TraceStore) -> Model:
    model = model_of(store, 0)
    assert isinstance(model, Model)
    return model


def test_the_stretches_follow_each_other_and_add_up(store: TraceStore) -> None:
    rows = store.rows("critical_path")
    begin = rows[0]["ts"]
    first = [row for row in rows if row["step"] == rows[0]["step"]]
    shown = [(row["kind"], row["name"], (row["ts"] - begin) // 1000, row["bound_ns"] // 1000) for row in first]
    assert shown == [
        ("dataloader", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 300),
        ("host", "aten::mm", 300, 10),
        ("host", "aten::mm", 310, 5),
        ("delay", "launch to start", 315, 5),
        ("kernel", "gemm", 320, 400),
        ("delay", "between work on a stream", 720, 2),
        ("memcpy", "Memcpy DtoH (Device -> Pageable)", 722, 3),
        ("delay", "end of work to end of wait", 725, 2),
        ("host", "aten::item", 727, 3),
        ("host", None, 730, 70),
        ("host", "aten::add", 800, 150),
        ("host", None, 950, 50),
    ]
    assert sum(row["bound_ns"] for row in rows) == 3 * whole(store).replayed_ns


def test_the_sum_by_kinds_is_that_of_the_stretches(store: TraceStore) -> None:
    found = bounds_of(store, whole(store))
    assert found == bound_shares(path_rows(store, whole(store)))
    assert [(share.kind, round(share.share, 3)) for share in found] == [
        ("kernel", 0.4), ("dataloader", 0.3), ("host", 0.288), ("delay", 0.009), ("memcpy", 0.003),
    ]  # fmt: skip


def test_the_picture_highlights_the_critical_path(store: TraceStore) -> None:
    drawn = path_timeline(store, 0, most_bars=100)
    assert drawn is not None
    assert [lane.side for lane in drawn.lanes] == ["path", "host", "device"]
    assert [bar.kind for bar in drawn.lanes[0].bars if bar.dur_ns > 20_000] == ["dataloader", "kernel", "host"]
    host, device = (drawn.lit[lane.key] for lane in drawn.lanes[1:])
    assert [(ts - drawn.ts_ns, dur) for ts, dur in host] == [(0, 315_000), (727_000, 273_000)]
    assert [(ts - drawn.ts_ns, dur) for ts, dur in device] == [(320_000, 405_000)]


def test_the_annotated_trace_has_the_path_as_lanes_with_arrows(store: TraceStore) -> None:
    report = compose(store, (), Device("cuda", None, 1), lambda _: Outcome((), ()))
    made = annotate(store, report, 0)
    lanes = [lane for lane in made.lanes if lane.name.startswith("critical path: ")]
    first = made.lanes.index(lanes[0])
    assert len(lanes) == 2
    # In each of the three steps, the path goes from the host to the device and back.
    assert [(flow.source - first, flow.target - first) for flow in made.flows] == [(0, 1), (1, 0)] * 3
    assert all(isinstance(flow, Flow) and flow.source_ts_ns < flow.target_ts_ns for flow in made.flows)


def test_without_a_prediction_there_is_no_path() -> None:
    waits = [runtime("cudaDeviceSynchronize", number * 1000 + 805, 190) for number in range(4)]
    with store_over([*events(), *waits], replay=replayed_rows) as store:
        assert not whole(store).predicts
        assert store.rows("critical_path") == []
        assert path_timeline(store, 0, most_bars=100) is None
