"""The same run after following the advice: BF16, HPU graphs, a fused optimizer, and overlapped data loading."""

from __future__ import annotations

import gaudi_bert as bert
from builders.gaudi import GaudiTrace
from builders.runtime_logs import banner, hugging_face_start
from gaudi_run import Graph, Run

DTYPE = "bf16"
STEPS = 7
FIRST_TRACED = 4
_STEP_START = 1_500_600_000_000.0

_FORWARD = Graph(
    "forward",
    (*bert.embedding(bert.SEQUENCE, DTYPE), *bert.fused_layer(DTYPE) * bert.LAYERS, *bert.head(DTYPE)),
    700.0,
    4_120_331.0,
)
_BACKWARD = Graph("backward", (*bert.head(DTYPE, 2), *bert.fused_layer(DTYPE, 2) * bert.LAYERS), 1_500.0, 6_880_915.0)
_ADAM = Graph(
    "FusedAdamW",
    tuple(
        bert.stream("optimizer_adamw", sum(bert.parameter_sizes()) // 3, 7, DTYPE, group=group, beside=group > 0)
        for group in range(3)
    ),
    260.0,
    611_004.0,
)
_SUM = Graph("loss sum", (bert.stream("reduce_sum_fwd", bert.TOKENS, 1, DTYPE),), 140.0, 90_120.0)


def run(trace: GaudiTrace) -> Run:
    """The whole run; the loss is read once, after the last step."""
    state = Run(trace, _STEP_START)
    state.log(banner(PT_HPU_RECIPE_CACHE_CONFIG="/tmp/hpu_recipes,false,2048"))
    state.log(hugging_face_start(64_000, 1, bert.BATCH, STEPS, sum(bert.parameter_sizes())))
    _warm_up(state)
    submitted = [state.now]
    for number in range(STEPS):
        if number == FIRST_TRACED:
            state.start_recording()
        _step(state, number, submitted)
    state.item(_SUM)
    state.recording = False
    state.log("{'loss': 5.9276, 'learning_rate': 5e-05}")
    state.snapshot("process_exit")
    return state


def _warm_up(state: Run) -> None:
    for graph in (_FORWARD, _BACKWARD, _ADAM, _SUM):
        state.known(graph)
        state.now += graph.compile_us
    state.device_free = state.launch_free = state.copies_free = state.now


def _step(state: Run, number: int, submitted: list[float]) -> None:
    with state.op(f"ProfilerStep#{number}", cat="user_annotation"):
        state.out.dataloader(state.now, 190.0)
        state.now += 195.0
        for _ in ("input_ids", "labels"):
            state.copy_in(8 * bert.TOKENS, [bert.BATCH, bert.SEQUENCE], "long int", pinned=True)
        state.replay(_FORWARD)
        state.replay(_BACKWARD)
        _optimize(state)
        # One step stays in flight: the host sleeps until the device has finished the previous step.
        state.wait(submitted[-1])
        submitted.append(state.device_free)


def _optimize(state: Run) -> None:
    with state.op("Optimizer.step#FusedAdamW.step", cat="user_annotation"):
        with state.bridge("optimizer_adamw_hpu_lazy"):
            state.now += 85.0
        state.cut(_ADAM, "host step marker")
    with state.op("Optimizer.zero_grad#FusedAdamW.zero_grad", cat="user_annotation"):
        state.now += 35.0
