"""Iterations of serving engines and their stages, for every spelling of the annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from events import Event, launch, step, x
from stores import Rows, RowsOfRanks

from perftool.store.trace_store import TraceStore

VLLM = "execute_context_1(140)_generation_3(3)"
DETAILED = "execute_143_context_1(sq140sk160sqsq19600sqsk22400)_generation_3(sq3sk900sqsq3sqsk900)"
MIXED = "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]"
MODEL = "vllm/v1/worker/gpu_model_runner.py"


def annotation(name: str, ts: float, dur: float) -> Event:
    return x(name, ts, dur, "user_annotation")


def frame(name: str, ts: float, dur: float) -> Event:
    return x(name, ts, dur, "python_function")


# Annotations with their phase, batch and prompt, context and generated tokens.
ANNOTATIONS = (
    (VLLM, "mixed", 4, 140, None, 3),
    (DETAILED, "mixed", 4, 140, 1060, 3),
    ("execute_context_1(888_788544)_generation_0(0)", "prefill", 1, 888, None, 0),
    ("execute_context_0(0)_generation_0(0)", "idle", 0, 0, None, 0),
    ("execute_new_0_cached_7", "decode", 7, 0, None, 7),
    ("execute_new_2_cached_7", "mixed", 9, None, None, 7),
    ("step[DECODE bs=32]", "decode", 32, 0, None, 32),
    ("step[EXTEND bs=2 toks=4096]", "prefill", 2, 4096, None, 0),
    ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", "decode", 64, 0, 131072, 128),
    (MIXED, "mixed", 2, 5, 20, 1),
    ("step[MIXED bs=2]", "mixed", 2, None, None, None),
    ("step[IDLE bs=0]", "idle", 0, 0, None, 0),
)
OTHERS = ("execute_context", "step[DRAFT_EXTEND bs=4]", "step[DECODE]", "execute_1_context_x")
SIZES = ("phase", "batch", "prompt_tokens", "context_tokens", "generated_tokens")


def test_an_annotation_gives_phase_and_sizes_and_others_are_no_iterations(rows_of_ranks: RowsOfRanks) -> None:
    names = [*(name for name, *_ in ANNOTATIONS), *OTHERS]
    found = rows_of_ranks("serving_iterations", *([annotation(name, 0, 100), x("aten::mm", 10, 50)] for name in names))

    values = [[tuple(row[key] for key in SIZES) for row in of_rank] for of_rank in found]
    expected = [*([sizes] for _, *sizes in ANNOTATIONS), *([] for _ in OTHERS)]
    assert dict(zip(names, values, strict=True)) == {
        name: [tuple(sizes) for sizes in one] for name, one in zip(names, expected, strict=True)
    }


def test_an_annotation_inside_another_is_the_same_iteration(rows: Rows) -> None:
    events = [
        annotation(DETAILED, 0, 100),
        annotation("step[MIXED bs=4]", 10, 80),
        annotation("step[DECODE bs=4]", 110, 80),
    ]

    assert [row["context_tokens"] for row in rows("serving_iterations", events)] == [1060, None]


# What may mark the steps of a program: nothing, the profiler's steps, or backward passes.
MARKED = (
    [],
    [step(number, 100 * number, 100) for number in range(4)],
    [x("autograd::engine::evaluate_function: MmBackward0", 100 * number + 50, 10) for number in range(4)],
)  # fmt: skip


@pytest.mark.parametrize(("work_us", "served"), [(10, False), (45, True)])
def test_a_program_that_mostly_does_other_work_is_no_server(
    store: Callable[..., TraceStore], work_us: int, served: bool
) -> None:
    """Otherwise, a single short annotation would hide the steps of a training. A server may mark the profiler's steps,
    too."""
    events = []
    for number in range(4):
        at = 100 * number
        events += [
            annotation("step[DECODE bs=1]", at + 1, 8), x("aten::mm", at + 1, 8), x("aten::mm", at + 55, 8),
            *launch(2 * number + 1, at + 2, 2, at + 5, work_us), *launch(2 * number + 2, at + 56, 2, at + 66, 30),
        ]  # fmt: skip
    opened = store(*([*marked, *events] for marked in MARKED))

    assert [row["rank"] for row in opened.rows("serving_iterations")] == ([0] * 4 + [1] * 4 + [2] * 4) * served
    assert {row["rank"] for row in opened.rows("steps") if row["source"] == "iteration"} == (
        {0, 1, 2} if served else set()
    )


def test_the_start_up_of_an_engine_is_no_other_work(rows_of_ranks: RowsOfRanks) -> None:
    events = [
        x("aten::mm", 0, 8), *launch(1, 1, 2, 5, 50),
        annotation("step[DECODE bs=1]", 60, 8), x("aten::mm", 60, 8), *launch(2, 61, 2, 65, 20),
    ]  # fmt: skip
    alone, in_a_step = rows_of_ranks("serving_iterations", events, [step(1, 0, 100), *events])
    assert (len(alone), len(in_a_step)) == (1, 0)


def test_an_iteration_lasts_until_the_next_one_if_requests_waited(rows: Rows) -> None:
    events = [
        annotation(name, ts, 10)
        for name, ts in (("step[DECODE bs=2]", 0), ("step[DECODE bs=2]", 50), ("step[EXTEND bs=1 toks=9]", 900))
    ]
    iterations = rows("serving_iterations", events)

    assert [row["time_ns"] for row in iterations] == [50_000, 10_000, 10_000]
    assert [row["gap_before_ns"] for row in iterations] == [None, 40_000, 840_000]
    steps = rows("steps", events)
    assert [(row["name"], row["dur"], row["source"]) for row in steps] == [
        ("decode 0", 50_000, "iteration"), ("decode 1", 10_000, "iteration"), ("prefill 2", 10_000, "iteration"),
    ]  # fmt: skip


def test_profiler_steps_do_not_hide_iterations(rows: Rows) -> None:
    events = [annotation("ProfilerStep#1", 0, 100), annotation("step[DECODE bs=2]", 10, 50)]

    assert [row["source"] for row in rows("step_marks", events)] == ["iteration"]


def test_an_asynchronous_device_works_on_after_the_annotation(rows: Rows) -> None:
    events = [annotation("step[DECODE bs=2]", 0, 50), *launch(1, 10, 5, 40, 100), x("aten::mm", 190, 10)]
    (row,) = rows("serving_iterations", events)

    assert (row["dur"], row["time_ns"], row["graphs"]) == (50_000, 140_000, False)


def test_stages_are_those_of_the_iteration_around_or_after_them(rows: Rows) -> None:
    events = [
        frame("vllm/v1/core/sched/scheduler.py(591): schedule", 0, 10),
        annotation("execute_context_0(0)_generation_3(3)", 20, 60),
        frame(f"{MODEL}(1920): _prepare_inputs", 22, 8),
        frame(f"{MODEL}(3620): _model_forward", 30, 40),
        frame(f"{MODEL}(3437): _sample", 85, 6),
        frame("vllm/v1/core/sched/scheduler.py(2026): update_from_output", 91, 4),
        frame("queue.py(154): get", 100, 50),
        annotation("execute_context_1(9)_generation_0(0)", 160, 20),
    ]
    first, second = rows("serving_iterations", events)

    values = [first[f"{stage}_ns"] for stage in ("schedule", "prepare", "forward", "sample", "post", "logits")]
    assert values == [10_000, 8_000, 40_000, 6_000, 4_000, None]
    assert (first["waited_ns"], second["waited_ns"], second["gap_before_ns"]) == (0, 50_000, 80_000)


def high_level(name: str, ts: float, dur: float) -> Event:
    """Return an event without a category, as vLLM's profiler on Gaudi writes it."""
    return {"ph": "X", "pid": 7, "tid": 3, "name": name, "ts": ts, "dur": dur, "args": None}


def counter(ts: float, **values: Any) -> Event:
    return {"ph": "C", "pid": 7, "tid": 1, "name": "utils", "ts": ts, "args": values}


GAUDI = [
    high_level("warmup", 0, 1000),
    high_level("decode", 100, 50),
    high_level("model_forward_bs1_seq1_ctx8_graphsT", 101, 40),
    high_level("prepare_input_tensors", 1100, 10),
    high_level("prefill", 1200, 500),
    counter(
        1200, prompt_batch_size=1, prompt_bucket_batch_size=2, prompt_bucket_seq_len=128,
        prompt_batch_token_utilization=0.25, cache_num_blocks_used=1,
    ),
    high_level("GRAPH COMPILE: recipe_1", 1200, 300),
    high_level("GRAPH COMPILE: recipe_2", 1500, 100),
    high_level("model_forward_bs2_seq128_ctx0_graphsF", 1201, 450),
    high_level("decode", 1800, 90),
    counter(
        1800, decode_batch_size=3, decode_bucket_batch_size=4, decode_bucket_seq_len=1,
        decode_batch_token_utilization=75.0, cache_num_blocks_used=5,
    ),
    high_level("model_forward_bs4_seq1_ctx32_graphsT", 1801, 70),
    high_level("sampler", 1880, 5),
    high_level("sampler_postprocessing", 1900, 7),
]  # fmt: skip


def test_the_high_level_profile_of_gaudi_gives_buckets_and_compilations(rows: Rows) -> None:
    prefill, decode = rows("serving_iterations", GAUDI)

    sizes = ("batch", "prompt_tokens", "context_tokens", "bucket_batch", "bucket_query", "bucket_blocks", "blocks_used")
    assert [prefill[key] for key in sizes] == [1, 64, None, 2, 128, 0, 1]
    assert [decode[key] for key in sizes] == [3, 0, 300, 4, 1, 32, 5]
    assert [(row["graphs"], row["compile_ns"]) for row in (prefill, decode)] == [(False, 400_000), (True, 0)]
    assert (prefill["prepare_ns"], decode["sample_ns"], decode["post_ns"]) == (10_000, 5_000, 7_000)


def test_a_trace_with_the_high_level_profile_inside_gives_the_same(rows: Rows) -> None:
    alone, inside = (rows("serving_iterations", events) for events in (GAUDI, [*GAUDI, x("aten::mm", 1300, 20)]))

    assert [row["bucket_batch"] for row in inside] == [row["bucket_batch"] for row in alone] == [2, 4]


def test_a_rank_that_does_not_name_its_shapes_has_iterations_too(rows: Rows) -> None:
    events = [high_level("decode", 0, 90), high_level("model_executable", 1, 70)]
    (row,) = rows("serving_iterations", events)

    assert (row["phase"], row["batch"], row["bucket_batch"], row["forward_ns"]) == ("decode", None, None, 70_000)


def test_calls_of_a_draft_model_are_not_iterations(rows: Rows) -> None:
    names = [
        "step[EXTEND bs=1 toks=80]",
        "step[EXTEND bs=1 toks=80]",
        "step[DECODE bs=1]",
        "step[TARGET_VERIFY bs=1]",
        "step[DRAFT_EXTEND bs=1]",
    ]
    iterations = rows("serving_iterations", [annotation(name, 100 * at, 50) for at, name in enumerate(names)])

    assert [(row["phase"], row["prompt_tokens"], row["generated_tokens"]) for row in iterations] == [
        ("prefill", 80, 0),
        ("decode", 0, None),
    ]


def test_impossible_numbers_of_a_server_are_ignored(rows: Rows) -> None:
    many = "9" * 40
    events = [
        annotation(f"execute_context_{many}({many})_generation_1(1)", 0, 50),
        annotation(f"step[DECODE bs={many}]", 100, 50),
        annotation(f"step[MIXED bs=2 c={many} g=1]", 200, 50),
    ]
    shape = ("decode_bucket_batch_size", "decode_bucket_seq_len", "decode_batch_token_utilization")
    hostile = [
        high_level("decode", 0, 90),
        high_level(f"model_forward_bs{many}_seq1_ctx1_graphsT", 1, 70),
        high_level("model_executable", 1, 1),
        counter(0, decode_batch_size=1e300, cache_num_blocks_used=1e300, **dict.fromkeys(shape, 1e9)),
    ]

    assert [row["generated_tokens"] for row in rows("serving_iterations", events)] == [1]
    assert [row["batch"] for row in rows("serving_iterations", hostile)] == [None]
