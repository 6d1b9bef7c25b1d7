"""What the first sentences say about steps of a run on the CPU that differ much in length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.reports import finding
from events import Event, document, step, x

from perftool.engine.analysis import analyze
from perftool.engine.report.caveats import _spread
from perftool.engine.report.step_spread import StepSpread, step_spread
from perftool.engine.report.verdict_input import OnCpu, VerdictInput
from perftool.engine.rules.pack import shipped_rules
from perftool.model.recorded_on import RECORDED_KEY

LENGTHS = "Steps take 10.0 ms to 16.0 ms"
OVERLOADED = {"version": 1, "machine": {"cores_allowed": 2},
              "window": {"wall_ns": 100_000, "threads": [{"tid": 1, "name": "python", "cpu_ns": 80_000,
                                                          "delay_ns": 20_000}]}}  # fmt: skip
WORKS = "the slowest has larger inputs, which take an estimated 6.00 ms more than those of the fastest"
VARIES = "calls with equal shapes take longer in slower steps (aten::mm, for example, 7.95 ms instead of 4.95 ms)"


def matmul(ts: float, dur: float, rows: int = 64, name: str = "aten::mm") -> Event:
    return x(name, ts, dur, **{"Input Dims": [[rows, 64], [64, 64]], "Input type": ["float", "float"]})


def steps_with(*ops: list[Event]) -> list[Event]:
    """Return steps of 10, 13, 16 and 12 ms, which run ``ops``, with times from the start of the step."""
    events: list[Event] = []
    for number, (dur, own) in enumerate(zip((10_000, 13_000, 16_000, 12_000), ops, strict=True)):
        ts = 20_000 * number
        events += [step(number, ts, dur), *({**op, "ts": op["ts"] + ts} for op in own)]
    return events


@pytest.fixture
def sentence(store: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that gives the sentence about steps that run the given ops."""

    def said(*ops: list[Event]) -> str:
        spread = step_spread(store(steps_with(*ops)), "step")
        return spread.sentence() if spread else ""

    return said


def test_larger_inputs(sentence: Callable[..., str]) -> None:
    ops = [[matmul(0, dur, rows)] for dur, rows in ((9900, 99), (12900, 129), (15900, 159), (11900, 119))]
    assert sentence(*ops) == f"{LENGTHS}: {WORKS}."


def test_more_ops(sentence: Callable[..., str]) -> None:
    ops = [[matmul(990 * k, 990) for k in range(calls)] for calls in (10, 13, 16, 12)]
    works = "runs 16 ops that compute instead of 10, which take an estimated 5.94 ms more than those of the fastest"
    assert sentence(*ops) == f"{LENGTHS}: the slowest {works}."


def test_calls_of_equal_shapes_that_take_longer(sentence: Callable[..., str]) -> None:
    ops = [[matmul(0, 0.5 * dur), matmul(0.5 * dur, 0.5 * dur)] for dur in (9900, 12900, 15900, 11900)]
    assert sentence(*ops) == f"{LENGTHS}: {VARIES}, and the recording does not show why."


def test_time_without_computation(sentence: Callable[..., str]) -> None:
    idle = "no op computes for 8.00 ms of the slowest, and for 2.00 ms of the fastest"
    assert sentence(*[[matmul(0, 8000)]] * 4) == f"{LENGTHS}: {idle}."


def test_without_shapes_only_the_lengths_are_said(sentence: Callable[..., str]) -> None:
    assert sentence(*[[x("aten::mm", 0, dur)] for dur in (9900, 12900, 15900, 11900)]) == f"{LENGTHS}."


def test_other_sentences_about_the_machine_shorten_the_sentence() -> None:
    """A wait for a core may be the reason. If the machine was overloaded, another sentence says that steps became
    longer.
    """

    def said(spread: StepSpread, waiting: str = "", overloaded: bool = False) -> str:
        findings = [finding(code="TRC111")] if overloaded else []
        on_cpu = OnCpu(spread=spread, waiting=waiting)
        return _spread(VerdictInput(summary={}, rules=(), not_applicable=(), findings=findings, on_cpu=on_cpu))

    varying = StepSpread(LENGTHS, varies=VARIES)
    assert said(varying, waiting="A thread waited.") == f"{LENGTHS}: {VARIES}."
    assert said(varying, overloaded=True) == ""
    assert said(StepSpread(LENGTHS, WORKS, varies=VARIES), overloaded=True) == f"{LENGTHS}: {WORKS}."


def test_a_report_on_an_overloaded_machine_names_larger_inputs(tmp_path: Path) -> None:
    ops = [[matmul(0, dur, rows)] for dur, rows in ((9900, 99), (12900, 129), (15900, 159), (11900, 119))]
    path = tmp_path / "trace.json"
    path.write_bytes(document(steps_with(*ops), **{RECORDED_KEY: OVERLOADED}))
    report = analyze([str(path)], [rule for rule in shipped_rules() if rule.code == "TRC111"])
    assert f"{LENGTHS}: {WORKS}." in report.verdict.caveats
    assert "The machine was overloaded" in report.verdict.headline + report.verdict.caveats


@pytest.mark.parametrize(
    ("durs", "said"),
    [((10, 13, 13), False), ((10, 13, 14), True), ((14, 10, 13), True), ((10, 14), False)],
    ids=["too little", "much", "the first is slow", "too few"],
)
def test_steps_that_spread(durs: tuple[int, ...], said: bool, store: Callable[..., Any]) -> None:
    events = [event for number, dur in enumerate(durs) for event in
              (step(number, 20_000 * number, 1000 * dur), x("aten::mm", 20_000 * number, 990 * dur))]  # fmt: skip
    assert (step_spread(store(events), "step") is not None) is said
