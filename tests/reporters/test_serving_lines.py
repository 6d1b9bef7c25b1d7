"""Sentences of the report about the iterations of a serving engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events import Event, x

from perftool.engine.report.serving import serving
from perftool.reporters.serving import serving_lines
from perftool.store.trace_store import TraceStore

MODEL = "vllm/v1/worker/gpu_model_runner.py"


def decode(ts: float) -> list[Event]:
    """Return a decode of eight requests: 6 ms of preparation, 30 ms in the model, and 4 ms until the next decode."""
    return [
        x("execute_context_0(0)_generation_8(8)", ts, 36_000, "user_annotation"),
        x(f"{MODEL}(1920): _prepare_inputs", ts, 6_000, "python_function"),
        x(f"{MODEL}(3620): _model_forward", ts + 6_000, 30_000, "python_function"),
    ]


def prefill(ts: float) -> Event:
    return x("execute_context_2(500)_generation_0(0)", ts, 100_000, "user_annotation")


def lines_of(store: Callable[..., TraceStore], events: list[Event], **metadata: Any) -> list[str]:
    shown = serving(store(events, **metadata))
    return list(serving_lines(shown)) if shown else []


def test_throughput_phases_and_a_decode(store: Callable[..., TraceStore]) -> None:
    events = [prefill(0), *(event for at in range(10) for event in decode(100_000 + 40_000 * at)), prefill(600_000)]

    assert lines_of(store, events) == [
        "114 tokens/s generated, 1,429 prompt tokens/s over 700 ms; no iteration runs for 14.9 % of the time.",
        "decode    56.6 % of the time, 10 x: median 40.0 ms, P99 40.0 ms, batch 8",
        "prefill   28.6 % of the time, 2 x: median 100 ms, P99 100 ms, batch 2",
        "A decode of 39.6 ms (mean): the model 75.8 %, preparing inputs 15.2 %, other 9.1 %.",
    ]


def test_stages_are_listed_only_if_the_recording_shows_the_model(store: Callable[..., TraceStore]) -> None:
    events = [event for at in range(3) for event in decode(40_000 * at) if event["cat"] == "user_annotation"]

    assert lines_of(store, events)[1:] == ["decode   100.0 % of the time, 3 x: median 40.0 ms, P99 40.0 ms, batch 8"]


def test_runs_that_are_not_servers_have_no_iterations(store: Callable[..., TraceStore]) -> None:
    assert lines_of(store, [x("aten::mm", 0, 50), x("ProfilerStep#1", 0, 60, "user_annotation")]) == []


def test_times_between_tokens_leave_out_compilations_with_a_note(store: Callable[..., TraceStore]) -> None:
    iterations = [
        x("execute_context_0(0)_generation_8(8)", ts, dur, "user_annotation")
        for ts, dur in (
            (0, 10_000),
            (10_000, 10_000),
            (20_000, 10_000),
            (30_000, 60_000),
            (90_000, 500_000),
            (590_000, 9),
        )
    ]

    lines = lines_of(store, [*iterations, x("entire_frame_compile", 100_000, 400_000)])

    (line,) = [line for line in lines if line.startswith("Time between")]
    assert line.startswith("Time between two tokens of a request, without compilations: median 10.0 ms, ")
    assert line.endswith(" longest 60.0 ms.")
