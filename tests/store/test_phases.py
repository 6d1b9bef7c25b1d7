"""The phases of a recording: start-up, warm-up, capture, the profiler's own work and the steady phase."""

from __future__ import annotations

from typing import Any

from events import Event, launch, loader, memcpy, runtime, step, x
from stores import Rows, RowsOfRanks


def phases(rows: Rows, *events: Event) -> list[tuple[str, float, str | None]]:
    """Return the phase, the length in us and the evidence of each stretch."""
    return stretches(rows("phases", list(events)))


def stretches(found: list[dict[str, Any]]) -> list[tuple[str, float, str | None]]:
    return [(row["phase"], row["dur"] / 1000, row["evidence"]) for row in found]


def steps(rows: Rows, *events: Event) -> list[tuple[str, float, str | None]]:
    """Return the source, the length on the host in us, and why the step is left out, for each step."""
    found = rows("steps", list(events))
    return [(row["source"], (row["host_end"] - row["host_ts"]) / 1000, row["left_out"]) for row in found]


def iteration(number: int, at: float, dur: float = 1000) -> list[Event]:
    """Return a backward pass with its device work, then the optimizer."""
    work = [event for n in range(6) for event in launch(10 * number + n, at + 10 * n, 5, at + 10 * n + 5, 10)]
    optimizer = x("Optimizer.step#SGD.step", at + dur - 100, 100, "user_annotation")
    return [x("MmBackward0", at, 100), *work, optimizer]


def test_a_recording_without_anything_special_is_steady(rows: Rows) -> None:
    assert phases(rows, x("aten::add", 0, 100)) == [("steady", 100, None)]


def test_capture_lasts_from_its_begin_to_its_end_or_to_that_of_the_recording(rows_of_ranks: RowsOfRanks) -> None:
    begun = [x("aten::add", 0, 1000), runtime("hipStreamBeginCapture", 200, 5)]
    ended = runtime("hipStreamEndCapture", 495, 5)
    # A capture that another one is part of, and the end of a capture of another thread.
    inner = [runtime("hipStreamBeginCapture", 240, 5), runtime("hipStreamEndCapture", 260, 5)]
    other = {**runtime("hipStreamEndCapture", 295, 5), "tid": 2}
    found = rows_of_ranks("phases", [*begun, ended], [*begun, *inner, other, ended], begun)

    whole = [("steady", 200, None), ("capture", 300, "hipStreamBeginCapture"), ("steady", 500, None)]
    assert list(map(stretches, found[:2])) == [whole, whole]
    assert stretches(found[2])[1:] == [("capture", 800, "hipStreamBeginCapture")]


def test_a_capture_whose_end_is_missing_lasts_until_something_runs(rows_of_ranks: RowsOfRanks) -> None:
    begun = [x("aten::add", 0, 1000), runtime("hipStreamBeginCapture", 200, 5)]
    later = [runtime("hipStreamBeginCapture", 700, 5), runtime("hipStreamEndCapture", 795, 5)]
    wait = runtime("hipStreamSynchronize", 600, 50)
    found = rows_of_ranks("phases", [*begun, *launch(1, 600, 5, 610, 50), *later], [*begun, wait, *later])

    assert list(map(stretches, found)) == [[
        ("steady", 200, None), ("capture", 400, "hipStreamBeginCapture"), ("steady", 100, None),
        ("capture", 100, "hipStreamBeginCapture"), ("steady", 200, None),
    ]] * 2  # fmt: skip


def test_start_up_lasts_while_one_time_slow_calls_fill_half_of_it(rows: Rows) -> None:
    calls = [runtime("cudaFree", 1000, 3000), *(runtime("cudaFree", 8000 + at, 1) for at in range(0, 500, 10))]

    assert phases(rows, x("aten::linear", 0, 8600), *calls) == [
        ("startup", 4000, "cudaFree"), ("steady", 4600, None),
    ]  # fmt: skip


def test_the_profiler_works_for_itself(rows: Rows) -> None:
    own = x("torch/profiler/profiler.py(848): _transit_action", 100, 50, "python_function")

    assert phases(rows, x("aten::add", 0, 100), own) == [("steady", 100, None), ("profiler", 50, own["name"])]


def test_a_wait_of_the_profiler_for_the_device_is_not_its_own_work(rows: Rows) -> None:
    own = x("torch/profiler/profiler.py(235): stop_trace", 100, 500, "python_function")
    wait = runtime("hipDeviceSynchronize", 150, 400)

    assert phases(rows, x("aten::add", 0, 100), own, wait) == [
        ("steady", 100, None), ("profiler", 50, own["name"]), ("steady", 400, None), ("profiler", 50, own["name"]),
    ]  # fmt: skip


def test_evaluation_and_checkpoints_are_phases_of_training_alone(rows: Rows) -> None:
    events = [x("aten::add", 0, 100), x("lightning/loops.py(9): validation_step", 200, 100, "python_function")]
    training = x("aten::_fused_adam_", 400, 100)

    assert phases(rows, *events) == [("steady", 300, None)]
    assert [row[0] for row in phases(rows, *events, training)] == ["steady", "evaluation", "steady"]


def test_a_function_that_mostly_saves_is_a_checkpoint(rows_of_ranks: RowsOfRanks) -> None:
    saved = x("torch/serialization.py(944): save", 110, 300, "python_function")
    own, loop = (
        x(f"train.py({line}): f", ts, dur, "python_function") for line, ts, dur in ((7, 100, 500), (1, 0, 590))
    )
    work = x("aten::add", 0, 100)

    short = x("torch/serialization.py(944): save", 110, 200, "python_function")
    whole, computing, shorter = map(stretches, rows_of_ranks(
        "phases", [loop, work, own, saved], [own, work, saved, x("aten::add", 450, 50)], [own, work, short]
    ))  # fmt: skip

    # The checkpoint is `own`, the outermost function that spends most of its time saving. The loop around it also
    # computes, so it does not count.
    assert whole == [("steady", 100, None), ("checkpoint", 500, own["name"])]
    # A function that also computes, or that saves for less than half of its time, is not the checkpoint either.
    assert computing[1] == ("checkpoint", 300, saved["name"])
    assert shorter[1] == ("checkpoint", 200, short["name"])


def test_steps_end_with_calls_of_the_optimizer(rows: Rows) -> None:
    events = [event for at in range(4) for event in iteration(at, 1000 * at)]

    assert steps(rows, *events) == [("optimizer", 1000, None)] * 4
    # Two calls are not a pattern. The profiler's marks take precedence.
    assert [row[0] for row in steps(rows, *iteration(0, 0), *iteration(1, 1000))] == [None]
    assert [row[0] for row in steps(rows, *events, step(1, 0, 4000))] == ["profiler"]


def test_the_last_of_several_optimizers_in_a_row_ends_the_step(rows: Rows) -> None:
    second = [x("Optimizer.step#Adam.step", 1000 * at + 1000, 50, "user_annotation") for at in range(4)]
    events = [event for at in range(4) for event in iteration(at, 1000 * at + 50 * (at > 0), 950 + 50 * (at == 0))]

    assert [row[1] for row in steps(rows, *events, *second)] == [1050, 1000, 1000, 1000]


def test_a_first_step_that_the_recording_cut_off_counts_in_no_number(rows: Rows) -> None:
    cut = [x("Optimizer.step#SGD.step", 0, 50, "user_annotation")]
    events = [event for at in range(4) for event in iteration(at + 1, 1000 * at + 100)]

    assert [row[2] for row in steps(rows, *cut, *events)] == ["incomplete", None, None, None, None]


def test_steps_without_an_optimizer_recur_with_their_annotation(rows: Rows) -> None:
    events = [event for at in range(5) for event in _served(at, 1000 * at)]

    assert [row[:2] for row in steps(rows, *events)] == [("annotation", 1000)] * 4


def test_similar_layers_are_not_steps(rows: Rows) -> None:
    layers = [event for at in range(40) for event in launch(at, 100 * at, 5, 100 * at + 5, 50)]

    assert [row[0] for row in steps(rows, x("aten::add", 0, 4000), *layers)] == [None]


def test_without_marks_a_step_begins_with_its_inputs_and_waits_for_its_result(rows: Rows) -> None:
    def served(at: int) -> list[Event]:
        ts = 1000 * at
        copy = memcpy("Memcpy HtoD (Pinned -> Device)", ts + 5, 5, 100 * at)
        copied = [runtime("cudaMemcpyAsync", ts, 5, 100 * at), copy]
        work = [event for n in range(1, 8) for event in launch(100 * at + n, ts + 10 * n, 5, ts + 10 * n + 5, 9)]
        return [*copied, x("aten::mm", ts + 10, 80), *work, runtime("cudaStreamSynchronize", ts + 90, 50)]

    events = [event for at in range(5) for event in served(at)]

    assert [row[:2] for row in steps(rows, *events)] == [("copies", 1000)] * 4


def _served(number: int, at: float) -> list[Event]:
    work = [event for n in range(6) for event in launch(10 * number + n, at + 10 * n, 5, at + 10 * n + 5, 10)]
    return [loader(at + 900, 50), x("## forward ##", at, 200, "user_annotation"), x("aten::mm", at, 100), *work]
