"""What fixes change in the schedule: all queries of the pack run, and some have known answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from events import Event, document, kernel, loader, runtime, step, x
from rule_cases import pack
from stores import store_over

from perftool.engine.analysis import analyze
from perftool.engine.rules.predict import changes_of
from perftool.engine.rules.rule_queries import Context
from perftool.model.report import Report
from perftool.replay.model import Model, model_of
from perftool.store.trace_store import TraceStore

MODELLED = sorted(code for code, rule in pack().items() if rule.whatif)


def steps_of(body: list[Event], count: int = 4, length: float = 1_000) -> list[Event]:
    events: list[Event] = []
    for number in range(count):
        events.append(step(number, number * length, length))
        for event in body:
            args = dict(event.get("args", {}))
            if "correlation" in args:
                args["correlation"] += 1_000 * number
            events.append({**event, "ts": event["ts"] + number * length, "args": args})
    return events


LOADING = steps_of([loader(10, 600), runtime("cudaLaunchKernel", 700, 5, 1), kernel("k", 708, 50, 1)])
UNEXPLAINED = steps_of([loader(10, 300), *[x("aten::add", 320, 5), runtime("cudaDeviceSynchronize", 400, 500)],
                        runtime("cudaLaunchKernel", 330, 5, 1), kernel("k", 338, 50, 1)])  # fmt: skip


def report_on(events: list[Event], folder: Path, *codes: str) -> Report:
    path = folder / "trace.json"
    path.write_bytes(document(events))
    return analyze([str(path)], [pack()[code] for code in codes])


@pytest.fixture(scope="module")
def loading() -> Iterator[TraceStore]:
    with store_over(LOADING) as store:
        yield store


@pytest.mark.parametrize("code", MODELLED)
def test_every_query_gives_changes(code: str, loading: TraceStore) -> None:
    model = model_of(loading, 0)
    assert isinstance(model, Model)
    changes = changes_of(loading, pack()[code], model, Context("cuda", 4, 1_000_000, 4_000_000))
    assert [change.kind for _, change in changes] == (["prefetch"] * 3 if code == "GAP102" else [])


def test_a_gain_is_the_result_of_the_replay(tmp_path: Path) -> None:
    report = report_on(LOADING, tmp_path, "GAP102")
    assert report.model is not None
    assert (report.model.measured_step_ns, report.model.replayed_step_ns, report.model.why_not) == (
        1_000_000, 1_000_000, None,
    )  # fmt: skip
    (gain,) = [finding.gain for finding in report.findings]
    assert gain is not None
    assert (gain.ns_per_step, gain.kind) == (600_000, "predicted")
    assert report.model.together is not None
    assert (report.model.together.codes, report.model.together.step_ns) == (("GAP102",), 400_000)


def test_gains_stay_bounds_where_the_steps_cannot_be_replayed(tmp_path: Path) -> None:
    report = report_on(UNEXPLAINED, tmp_path, "GAP102")
    assert report.model is not None
    assert report.model.why_not is not None
    assert report.model.together is None
    assert [finding.gain and finding.gain.kind for finding in report.findings] == ["bound"]


def changes(events: list[Event], code: str) -> list[tuple[str, float, float]]:
    """Return the changes that the fix of ``code`` makes to the first replayed step: the kind, the start in us and the
    factor.
    """
    with store_over(events) as store:
        model = model_of(store, 0)
        assert isinstance(model, Model)
        found = changes_of(store, pack()[code], model, Context("cuda", 4, 1_000_000, 4_000_000))
        begin = model.graph.recording.begin
        return sorted(
            (one.kind, (one.ts - begin) / 1_000, one.factor) for _, one in found if one.ts < begin + 1_000_000
        )


def launched(name: str, number: int, ts: float, at: float, **args: object) -> list[Event]:
    """Return an op of 30 us, its launch, and a kernel of 40 us."""
    return [x(name, ts, 30, **args), runtime("cudaLaunchKernel", ts + 5, 5, number), kernel("k", at, 40, number)]


def test_a_fused_attention_leaves_the_products_as_they_are() -> None:
    scores = {"Input Dims": [[8, 512, 512]]}
    body = [
        *launched("aten::bmm", 1, 100, 110), *launched("aten::mul", 2, 140, 150),
        *launched("aten::_softmax", 3, 180, 190, **scores), *launched("aten::bmm", 4, 220, 230),
        *launched("aten::add", 5, 260, 270),
    ]  # fmt: skip
    assert changes(steps_of(body), "FUS103") == [("skip", 150, 1.0), ("skip", 190, 1.0)]


def test_a_captured_kernel_still_costs_the_host_something() -> None:
    body = [*launched("aten::mm", 1, 100, 110), x("aten::view", 200, 10), *launched("aten::add", 2, 300, 310)]
    found = changes(steps_of(body), "GAP104")
    assert found == [("shorten", 100, 0.1), ("shorten", 200, 0.0), ("shorten", 300, 0.1)]
