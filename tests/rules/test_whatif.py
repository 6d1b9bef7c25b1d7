"""What the fixes of rules change in the schedule: every query of the pack runs, and some known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, document, kernel, loader, runtime, step, x
from rule_cases import pack
from stores import store_over

from perftool.engine.analysis import analyze
from perftool.engine.rules.asking import Context
from perftool.engine.rules.predict import changes_of
from perftool.model.report import Report
from perftool.replay.model import Model, model_of

MODELLED = sorted(code for code, rule in pack().items() if rule.whatif)


def steps_of(body: list[Event], count: int = 4, length: float = 1_000) -> list[Event]:
    """``count`` equal steps of ``length`` us."""
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


@pytest.mark.parametrize("code", MODELLED)
def test_every_query_gives_changes(code: str) -> None:
    with store_over(LOADING) as store:
        model = model_of(store, 0)
        assert isinstance(model, Model)
        changes = changes_of(store, pack()[code], model, Context("cuda", 4, 1_000_000, 4_000_000))
        assert [change.kind for _, change in changes] == (["prefetch"] * 3 if code == "GAP102" else [])


def test_a_gain_is_what_the_replay_says(tmp_path: Path) -> None:
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
