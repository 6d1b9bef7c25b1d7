"""The kernels of a four-layer BERT-like encoder: durations from operation and byte counts.

The rates are effective rates, not peaks: 70 TFLOPS of FP32 and 300 TFLOPS of BF16 on the MME, and 1.7 TB/s of data
that the TPCs stream. They are round guesses for a Gaudi 2 that give plausible durations, and have no other meaning.
"""

from __future__ import annotations

from gaudi_run import Kernel

BATCH, SEQUENCE, HIDDEN, INNER, HEADS, LAYERS, VOCABULARY = 16, 512, 1024, 4096, 16, 4, 30_522
PREDICTED = 640
TOKENS = BATCH * SEQUENCE
SCORES = BATCH * HEADS * SEQUENCE * SEQUENCE

_FLOP_PER_US = {"float32": 70e6, "bf16": 300e6}
_BYTES = {"float32": 4, "bf16": 2}
_STREAM_BYTES_PER_US = 1.7e6
_SUFFIX = {"float32": "f32", "bf16": "bf16"}
_MME_LANES = (0, 1, 2, 3)
_TPC_GROUPS = (tuple(range(8)), tuple(range(8, 16)), tuple(range(16, 24)))


def gemm(m: int, n: int, k: int, dtype: str, *, count: int = 1, beside: bool = False) -> Kernel:
    """A matmul of m x k and k x n, or a batch of ``count`` of them."""
    name = "GEMM" if count == 1 else "BatchGemm"
    dur = 2.0 * m * n * k * count / _FLOP_PER_US[dtype]
    return Kernel("MME", name, round(dur, 3), dtype, _MME_LANES, beside)


def stream(name: str, elements: int, passes: float, dtype: str, *, group: int = 0, beside: bool = False) -> Kernel:
    """A TPC kernel that moves its elements ``passes`` times, on a third of the TPCs."""
    dur = max(2.5, elements * passes * _BYTES[dtype] / _STREAM_BYTES_PER_US)
    label = f"{name}_{_SUFFIX[dtype]}"
    return Kernel("TPC", label, round(dur, 3), dtype, _TPC_GROUPS[group % 3], beside)


def embedding(length: int, dtype: str) -> tuple[Kernel, ...]:
    """Look up token vectors, pad them from the batch's length to the model's, and normalise them."""
    return (
        stream("gather_fwd", BATCH * length * HIDDEN, 2, dtype),
        stream("pad_fwd", TOKENS * HIDDEN, 2, dtype, group=1),
        stream("layer_norm_fwd", TOKENS * HIDDEN, 2, dtype, group=2),
    )


def attention(dtype: str, passes: int = 1) -> tuple[Kernel, ...]:
    """Self-attention as separate matmuls and softmax, or its backward pass if ``passes`` is 2."""
    head = HIDDEN // HEADS
    products = [gemm(TOKENS, HIDDEN, HIDDEN, dtype) for _ in range(4 * passes)]
    scores = [gemm(SEQUENCE, SEQUENCE, head, dtype, count=BATCH * HEADS) for _ in range(passes)]
    values = [gemm(SEQUENCE, head, SEQUENCE, dtype, count=BATCH * HEADS) for _ in range(passes)]
    softmax = "softmax_fwd" if passes == 1 else "softmax_bwd"
    middle = (stream("fused_kernel_0x5F1C2A07_C", SCORES, 2, dtype), stream(softmax, SCORES, 2, dtype, group=1))
    norm = stream("layer_norm_fwd" if passes == 1 else "layer_norm_bwd", TOKENS * HIDDEN, 4, dtype, group=2)
    return (*products[:-1], *scores, *middle, *values, products[-1], norm)


def mlp(dtype: str, passes: int = 1) -> tuple[Kernel, ...]:
    """The two wide matmuls of a layer with GELU and normalisation, or their backward pass if ``passes`` is 2."""
    up = [gemm(TOKENS, INNER, HIDDEN, dtype) for _ in range(passes)]
    down = [gemm(TOKENS, HIDDEN, INNER, dtype) for _ in range(passes)]
    gelu = stream("gelu_fwd" if passes == 1 else "gelu_bwd", TOKENS * INNER, 2, dtype, group=1)
    norm = stream("layer_norm_fwd" if passes == 1 else "layer_norm_bwd", TOKENS * HIDDEN, 4, dtype, group=2)
    return (*up, gelu, *down, norm)


def head(dtype: str, passes: int = 1) -> tuple[Kernel, ...]:
    """The vocabulary scores of the predicted tokens, and the loss."""
    product = [gemm(PREDICTED, VOCABULARY, HIDDEN, dtype) for _ in range(passes)]
    loss = stream("sparse_softmax_cross_entropy_fwd", PREDICTED * VOCABULARY, 3, dtype)
    return (stream("index_select_fwd", PREDICTED * HIDDEN, 2, dtype, group=1), *product, loss)


def fused_layer(dtype: str, passes: int = 1) -> tuple[Kernel, ...]:
    """A layer whose elementwise work runs in parallel with its matmuls, with one fused attention kernel."""
    way = "fwd" if passes == 1 else "bwd"
    width = HIDDEN // HEADS
    kernels = [gemm(TOKENS, 3 * HIDDEN, HIDDEN, dtype) for _ in range(passes)]
    kernels += [stream(f"layer_norm_{way}", TOKENS * HIDDEN, 4, dtype, group=2, beside=True)]
    kernels += [gemm(SEQUENCE, SEQUENCE, width, dtype, count=2 * BATCH * HEADS) for _ in range(passes)]
    kernels += [stream(f"sdpa_recomp_{way}", SCORES // 2, 2, dtype, beside=True)]
    kernels += [gemm(TOKENS, HIDDEN, HIDDEN, dtype) for _ in range(passes)]
    kernels += [gemm(TOKENS, INNER, HIDDEN, dtype) for _ in range(passes)]
    kernels += [stream(f"gelu_{way}", TOKENS * INNER, 2, dtype, group=1, beside=True)]
    kernels += [gemm(TOKENS, HIDDEN, INNER, dtype) for _ in range(passes)]
    return tuple(kernels)


def parameter_sizes() -> list[int]:
    """The number of elements of every trainable tensor."""
    layer = [HIDDEN * HIDDEN, HIDDEN] * 4 + [HIDDEN * INNER, INNER, INNER * HIDDEN, HIDDEN] + [HIDDEN] * 4
    return [VOCABULARY * HIDDEN, SEQUENCE * HIDDEN, HIDDEN, HIDDEN] + layer * LAYERS
