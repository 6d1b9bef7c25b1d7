"""The unoptimised run: seven lazy-mode FP32 steps, of which the profiler records the fifth to the seventh."""

from __future__ import annotations

import gaudi_bert as bert
from builders.fallback_logs import table_f4
from builders.gaudi import GaudiTrace
from builders.runtime_logs import banner, hugging_face_start
from gaudi_run import AUTOGRAD_THREAD, Graph, Kernel, Run

DTYPE = "float32"
LENGTHS = (384, 384, 384, 384, 384, 352, 416)
"""Longest sequence of each step's batch: the collator pads to it, so a new length means a new graph."""
LOADER_US = (29_400.0, 27_900.0, 28_300.0, 29_100.0, 28_600.0, 27_700.0, 29_300.0)
FIRST_TRACED = 4
_ADAM_OPS = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "add_", "addcdiv_")
_STEP_START = 1_500_000_000_000.0

_ATTENTION = Graph("attention forward", bert.attention(DTYPE), 760.0, 911_022.0)
_MLP = Graph("mlp forward", bert.mlp(DTYPE), 620.0, 702_310.0)
_MASKED = Graph("masked positions", (bert.stream("not_equal_fwd", bert.TOKENS, 2, DTYPE),), 220.0, 88_214.0)
_HEAD = Graph("head", bert.head(DTYPE), 640.0, 498_120.0)
_EVIDENCE = Graph("evidence", (bert.stream("reduce_sum_fwd", bert.TOKENS, 2, DTYPE),), 240.0, 95_377.0)
_LOSS = Graph("loss", (bert.stream("fused_kernel_0x91AA40E3_C", bert.TOKENS, 4, DTYPE),), 260.0, 101_498.0)
_NORM = Graph(
    "gradient norm",
    (bert.stream("reduce_l2_norm_fwd", sum(bert.parameter_sizes()), 1, DTYPE),),
    300.0,
    140_212.0,
)


def run(trace: GaudiTrace) -> Run:
    """The whole run, from the start-up banner to the fallback table at exit."""
    state = Run(trace, _STEP_START)
    state.log(banner())
    state.log(hugging_face_start(64_000, 1, bert.BATCH, len(LENGTHS), sum(bert.parameter_sizes())))
    for number, length in enumerate(LENGTHS):
        if number == FIRST_TRACED:
            state.start_recording()
        _step(state, number, length)
    state.recording = False
    state.snapshot("process_exit")
    state.log(table_f4(state.fallbacks, state.clock().strftime("%H:%M:%S.%f")))
    return state


def _step(state: Run, number: int, length: int) -> None:
    with state.op(f"ProfilerStep#{number}", cat="user_annotation"):
        _load(state, number, length)
        _forward(state, length)
        _loss(state)
        _backward(state)
        _optimize(state)
        _report(state)


def _load(state: Run, number: int, length: int) -> None:
    begin = state.now
    state.now += LOADER_US[number]
    state.out.dataloader(begin, LOADER_US[number])
    ids = [bert.BATCH, length]
    state.copy_in(8 * bert.BATCH * length, ids, "long int")
    state.copy_in(8 * bert.BATCH * length, ids, "long int")
    # The collator expands the mask on the host, so megabytes cross PCIe instead of kilobytes.
    mask = [bert.BATCH, 1, bert.SEQUENCE, bert.SEQUENCE]
    state.copy_in(4 * bert.BATCH * bert.SEQUENCE**2, mask, "float")


def _forward(state: Run, length: int) -> None:
    ids = [bert.BATCH, length]
    state.leaf("aten::embedding", 21.0, dims=[[bert.VOCABULARY, bert.HIDDEN], ids], types=["float", "long int"])
    state.leaf("aten::constant_pad_nd", 18.0, dims=[[*ids, bert.HIDDEN]], types=["float"])
    state.leaf("aten::native_layer_norm", 24.0, dims=[[bert.BATCH, bert.SEQUENCE, bert.HIDDEN]], types=["float"])
    compile_us = 13_200.0 + 8.0 * length
    state.item(Graph(f"embedding {length}", bert.embedding(length, DTYPE), 600.0, compile_us))
    for layer in range(bert.LAYERS):
        _allocate(state, layer, bert.SCORES * 4)
        _attention_ops(state)
        state.item(_ATTENTION)
        _mlp_ops(state)
        state.item(_MLP)


def _attention_ops(state: Run) -> None:
    tokens = [bert.BATCH, bert.SEQUENCE, bert.HIDDEN]
    for _ in range(3):
        _linear(state, tokens, [bert.HIDDEN, bert.HIDDEN])
    scores = [bert.BATCH, bert.HEADS, bert.SEQUENCE, bert.SEQUENCE]
    state.leaf("aten::matmul", 26.0)
    state.leaf("aten::add", 14.0, dims=[scores], types=["float"])
    state.leaf("aten::softmax", 17.0, dims=[scores], types=["float"])
    state.leaf("aten::matmul", 25.0)
    _linear(state, tokens, [bert.HIDDEN, bert.HIDDEN])
    state.leaf("aten::native_layer_norm", 23.0, dims=[tokens], types=["float"])


def _mlp_ops(state: Run) -> None:
    _linear(state, [bert.BATCH, bert.SEQUENCE, bert.HIDDEN], [bert.INNER, bert.HIDDEN])
    state.leaf("aten::gelu", 16.0)
    _linear(state, [bert.BATCH, bert.SEQUENCE, bert.INNER], [bert.HIDDEN, bert.INNER])
    state.leaf("aten::native_layer_norm", 23.0)


def _linear(state: Run, left: list[int], right: list[int]) -> None:
    with state.op("aten::linear", dims=[left, right], types=["float", "float"]):
        state.leaf("aten::addmm", 22.0)


def _loss(state: Run) -> None:
    state.leaf("aten::ne", 12.0)
    state.fallback("nonzero", _MASKED, 8 * bert.TOKENS, 210.0, "HPUBoolType")
    state.leaf("aten::index_select", 17.0)
    _linear(state, [bert.PREDICTED, bert.HIDDEN], [bert.VOCABULARY, bert.HIDDEN])
    state.leaf("aten::cross_entropy_loss", 28.0)
    state.fallback("digamma", _HEAD, 4 * bert.TOKENS, 385.0, "HPUFloatType")
    state.leaf("aten::sum", 13.0)
    state.fallback("digamma", _EVIDENCE, 4 * bert.BATCH, 24.0, "HPUFloatType")
    state.leaf("aten::add", 12.0)
    state.item(_LOSS)


def _backward(state: Run) -> None:
    for node in (
        "AddmmBackward0",
        "NativeLayerNormBackward0",
        "GeluBackward0",
        "SoftmaxBackward0",
    ) * bert.LAYERS:
        with state.op(f"autograd::engine::evaluate_function: {node}", tid=AUTOGRAD_THREAD):
            state.leaf(node, 26.0, tid=AUTOGRAD_THREAD)
    layer = (*bert.mlp(DTYPE, 2), *bert.attention(DTYPE, 2))
    graph = Graph("backward", (*bert.head(DTYPE, 2), *layer * bert.LAYERS), 2_400.0, 3_911_840.0)
    state.cut(graph, "host step marker")
    state.snapshot("mark_step")
    for layer_number in reversed(range(bert.LAYERS)):
        _allocate(state, layer_number, -bert.SCORES * 4)


def _optimize(state: Run) -> None:
    sizes = bert.parameter_sizes()
    with state.op("Optimizer.step#AdamW.step", cat="user_annotation"):
        for size in sizes:
            for name in _ADAM_OPS:
                state.leaf(f"aten::{name}", 7.0, dims=[[size]], types=["float"])
    with state.op("Optimizer.zero_grad#AdamW.zero_grad", cat="user_annotation"):
        state.now += 140.0
    kernels = tuple(kernel for size in sizes for kernel in _adam_kernels(size))
    state.cut(Graph("AdamW", kernels, 3_100.0, 2_204_551.0), "host step marker")
    state.snapshot("mark_step")


def _report(state: Run) -> None:
    state.leaf("aten::linalg_vector_norm", 31.0)
    state.item(_NORM)
    step = len(state.snapshots) // 2
    state.log(f"{{'loss': {7.61 - 0.21 * step:.4f}, 'grad_norm': {2.9 - 0.17 * step:.4f}, 'learning_rate': 5e-05}}")


def _adam_kernels(size: int) -> tuple[Kernel, ...]:
    names = ("fused_kernel_0x1D07B61A_C", "fused_kernel_0x1D08C3F5_C", "fused_kernel_0x1D09E824_C")
    wide = [bert.stream(name, size, 3, DTYPE, group=group) for group, name in enumerate(names)]
    return tuple(Kernel(k.engine, k.name, k.dur, k.dtype, k.lanes[:2]) for k in wide)


def _allocate(state: Run, layer: int, size: int) -> None:
    held = 1_640_000_000 + (layer + (size > 0)) * bert.SCORES * 4
    state.out.memory(state.now, size, held, address=1_152_957_300_000 + layer * bert.SCORES * 4)
