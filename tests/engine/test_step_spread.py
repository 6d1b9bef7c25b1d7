"""What the first sentences say about steps of a run on the CPU that differ much in length."""

from __future__ import annotations

from pathlib import Path

import pytest
from events import Event, document, step, x

from perftool.engine.analysis import analyze
from perftool.model.recorded_on import RECORDED_KEY

LENGTHS = "Steps take 10.0 ms to 16.0 ms"
OVERLOADED = {"version": 1, "machine": {"cores_allowed": 2},
              "window": {"wall_ns": 100_000, "threads": [{"tid": 1, "name": "python", "cpu_ns": 80_000,
                                                          "delay_ns": 20_000}]}}  # fmt: skip
WAITED = {**OVERLOADED, "window": {"wall_ns": 100_000, "threads": [{"tid": 1, "name": "python", "cpu_ns": 80_000,
                                                                     "delay_ns": 8_000}]}}  # fmt: skip


def matmul(ts: float, dur: float, rows: int = 64, name: str = "aten::mm") -> Event:
    return x(name, ts, dur, **{"Input Dims": [[rows, 64], [64, 64]], "Input type": ["float", "float"]})


def sentence(folder: Path, *ops: list[Event], **recorded: object) -> str:
    """Return the sentence about steps of 10, 13, 16 and 12 ms, which run ``ops``, with times from the start of the
    step.
    """
    events: list[Event] = []
    for number, (dur, own) in enumerate(zip((10_000, 13_000, 16_000, 12_000), ops, strict=True)):
        ts = 20_000 * number
        events += [step(number, ts, dur), *({**op, "ts": op["ts"] + ts} for op in own)]
    path = folder / "trace.json"
    path.write_bytes(document(events, **({RECORDED_KEY: recorded} if recorded else {})))
    caveats = analyze([str(path)]).verdict.caveats
    return caveats[caveats.index("Steps take") :].split(". ")[0].rstrip(".") if "Steps take" in caveats else ""


def test_larger_inputs(tmp_path: Path) -> None:
    ops = [[matmul(0, dur, rows)] for dur, rows in ((9900, 99), (12900, 129), (15900, 159), (11900, 119))]
    said = "the slowest has larger inputs, which take an estimated 6.00 ms more than those of the fastest"
    assert sentence(tmp_path, *ops) == f"{LENGTHS}: {said}"


def test_more_ops(tmp_path: Path) -> None:
    ops = [[matmul(990 * k, 990) for k in range(calls)] for calls in (10, 13, 16, 12)]
    works = "runs 16 ops that compute instead of 10, which take an estimated 5.94 ms more than those of the fastest"
    said = f"{LENGTHS}: the slowest {works}"
    assert sentence(tmp_path, *ops) == said


def test_calls_of_equal_shapes_that_take_longer(tmp_path: Path) -> None:
    ops = [[matmul(0, 0.5 * dur), matmul(0.5 * dur, 0.5 * dur)] for dur in (9900, 12900, 15900, 11900)]
    varies = "calls with equal shapes take longer in slower steps (aten::mm, for example, 7.95 ms instead of 4.95 ms)"
    assert sentence(tmp_path, *ops) == f"{LENGTHS}: {varies}, and the recording does not show why"
    # The wait for a core may be the reason. If the machine was overloaded, another sentence says that steps became
    # longer.
    assert sentence(tmp_path, *ops, **WAITED) == f"{LENGTHS}: {varies}"
    assert sentence(tmp_path, *ops, **OVERLOADED) == ""


def test_larger_inputs_on_an_overloaded_machine(tmp_path: Path) -> None:
    ops = [[matmul(0, dur, rows)] for dur, rows in ((9900, 99), (12900, 129), (15900, 159), (11900, 119))]
    assert sentence(tmp_path, *ops, **OVERLOADED).startswith(f"{LENGTHS}: the slowest has larger inputs")


def test_time_without_computation(tmp_path: Path) -> None:
    ops = [[matmul(0, 8000)] for _ in range(4)]
    assert (
        sentence(tmp_path, *ops)
        == f"{LENGTHS}: no op computes for 8.00 ms of the slowest, and for 2.00 ms of the fastest"
    )


def test_without_shapes_only_the_lengths_are_said(tmp_path: Path) -> None:
    assert sentence(tmp_path, *[[x("aten::mm", 0, dur)] for dur in (9900, 12900, 15900, 11900)]) == LENGTHS


@pytest.mark.parametrize(
    ("durs", "said"),
    [((10, 13, 13), False), ((10, 13, 14), True), ((14, 10, 13), True), ((10, 14), False)],
    ids=["too little", "much", "the first is slow", "too few"],
)
def test_steps_that_spread(durs: tuple[int, ...], said: bool, tmp_path: Path) -> None:
    events = [event for number, dur in enumerate(durs) for event in
              (step(number, 20_000 * number, 1000 * dur), x("aten::mm", 20_000 * number, 990 * dur))]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_bytes(document(events))
    assert ("Steps take" in analyze([str(path)]).verdict.caveats) is said
