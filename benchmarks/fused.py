"""Compares our fused ops with PyTorch's fastest ops for the same work, on the shapes of real models.

    python -m benchmarks.fused [--ops NAME ...] [--models NAME ...] [--dtypes NAME ...] [--seconds N]

A ratio is the time of PyTorch's op divided by the time of ours, so a ratio above 1 means that ours is faster. It is the
median of interleaved rounds, with its interval. A ratio below 0.95 is measured again for five times as long. `memory`
is the peak of our op divided by that of PyTorch's op, or `-` if both are below 64 KiB.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from benchmarks.shapes import SETS, Shape
from perftool import fused
from perftool.bench.harness.recording import peak_memory
from perftool.bench.harness.team import Team
from perftool.bench.harness.timing import Clock, Effort, race
from perftool.bench.workloads.experts import ExpertLoop, Mixture
from perftool.bench.workloads.plain_optimizers import Lamb, Lars
from perftool.model.benchmark import Ratio

CPU = torch.device("cpu")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
GOAL = 0.95
LITTLE = 64 * 1024
DECAY = 0.01

Run = Callable[[], object]


@dataclass(frozen=True)
class Cell:
    """The same work in PyTorch and in perftool. `make` builds both forms, which may need a lot of memory."""

    op: str
    model: str
    dtype: str
    mode: str
    theirs: str
    make: Callable[[], tuple[Run, Run]]


def parameters(shapes: list[Shape], dtype: torch.dtype) -> list[nn.Parameter]:
    """Return random parameters with gradients."""
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter((torch.randn(shape, generator=generator) * 0.02).to(dtype)) for shape in shapes]
    for param in params:
        param.grad = torch.full_like(param, 1e-3)
    return params


def _lars(params: list[nn.Parameter]) -> fused.FusedLars:
    base = fused.FusedResourceApplyMomentum(params, lr=1.0, momentum=0.9, weight_decay=DECAY)
    return fused.FusedLars(base, [int(param.dim() > 1) for param in params], eeta=1.0)


# torch.optim.SGD(fused=True) computes wrong results in bfloat16 on CPUs, so the default counts as PyTorch's best there.
_SGD = {"lr": 1e-3, "momentum": 0.9, "weight_decay": DECAY}
OPTIMIZERS: dict[str, tuple[str, Callable[[Any, bool], Any], Callable[[Any], Any]]] = {
    "FusedAdamW": (
        "AdamW(fused=True)",
        lambda params, _: torch.optim.AdamW(params, weight_decay=DECAY, fused=True),
        partial(fused.FusedAdamW, weight_decay=DECAY),
    ),
    "FusedSGD": (
        "SGD(fused=True), bfloat16: SGD()",
        lambda params, wide: torch.optim.SGD(params, **_SGD, fused=wide or None),
        partial(fused.FusedSGD, **_SGD),
    ),
    "FusedAdagrad": (
        "Adagrad(fused=True)",
        lambda params, _: torch.optim.Adagrad(params, weight_decay=DECAY, fused=True),
        partial(fused.FusedAdagrad, weight_decay=DECAY),
    ),
    "FusedLamb": (
        "a loop of tensor ops",
        lambda params, _: Lamb(params, max_grad_norm=1e3),
        partial(fused.FusedLamb, max_grad_norm=1e3),
    ),
    "FusedLars": ("a loop of in-place ops", lambda params, _: Lars(params, 1.0, 1.0, DECAY), _lars),
}


class Model(nn.Module):
    """A module that contains only parameters."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(params)


def _average(shapes: list[Shape], dtype: torch.dtype) -> tuple[Run, Run]:
    model = Model(parameters(shapes, dtype))
    theirs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))  # type: ignore[no-untyped-call]
    theirs.update_parameters(model)
    ours = fused.FusedEMA(copy.deepcopy(model), 0.99, 10_000)
    return lambda: theirs.update_parameters(model), lambda: ours.update(model)


def _clip(shapes: list[Shape], dtype: torch.dtype) -> tuple[Run, Run]:
    params = parameters(shapes, dtype)
    clip = fused.FusedClipNorm(params, 1e-3)
    return lambda: nn.utils.clip_grad_norm_(params, 1e-3), lambda: clip.clip_norm(params)


def _steps(op: str, shapes: list[Shape], dtype: torch.dtype) -> tuple[Run, Run]:
    _, theirs, ours = OPTIMIZERS[op]
    wide = dtype == torch.float32
    return theirs(parameters(shapes, dtype), wide).step, ours(parameters(shapes, dtype)).step


def over_parameters() -> Iterator[Cell]:
    """Yield cells for optimizers, the moving average and clipping, over the parameters of a model."""
    for model, shapes in SETS.items():
        for name, dtype in DTYPES.items():
            for op, (theirs, _, _) in OPTIMIZERS.items():
                yield Cell(op, model, name, "step", theirs, lambda op=op, s=shapes, d=dtype: _steps(op, s(), d))
            yield Cell("FusedEMA", model, name, "step", "AveragedModel", lambda s=shapes, d=dtype: _average(s(), d))
            yield Cell("FusedClipNorm", model, name, "step", "clip_grad_norm_", lambda s=shapes, d=dtype: _clip(s(), d))


# For each model: batch, heads, key heads, queries and keys; whether attention is causal; whether a mask hides padding.
ATTENTION = {
    "ViT-B/16": ((4, 12, 12, 197, 197), False, False),
    "BERT-base, 128": ((8, 12, 12, 128, 128), False, True),
    "BERT-base, 512": ((2, 12, 12, 512, 512), False, True),
    "GPT-2, 32": ((4, 12, 12, 32, 32), True, False),
    "GPT-2, 1024": ((1, 12, 12, 1024, 1024), True, False),
    "GPT-2, next token": ((1, 12, 12, 1, 1024), False, False),
    "Llama 1B, 512": ((1, 32, 8, 512, 512), True, False),
}


def _both(function: Callable[..., Any], inputs: list[Tensor], training: bool) -> Run:
    upstream: list[Tensor] = []

    def run() -> object:
        if not training:
            with torch.no_grad():
                return function(*inputs)
        output = function(*inputs)
        if not upstream:
            upstream.append(torch.ones_like(output))
        return torch.autograd.grad(output, [each for each in inputs if each.requires_grad], upstream[0])

    return run


def _attention(model: str, dtype: torch.dtype, training: bool) -> tuple[Run, Run]:
    (batch, heads, shared, queries, keys), causal, padded = ATTENTION[model]
    shapes = [(batch, heads, queries, 64), (batch, shared, keys, 64), (batch, shared, keys, 64)]
    inputs = [torch.randn(shape).to(dtype).requires_grad_(training) for shape in shapes]
    mask = (torch.arange(keys) < keys - 7).expand(batch, 1, 1, keys) if padded else None

    def theirs(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, enable_gqa=shared != heads)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return fused.FusedSDPA.apply(q, k, v, mask, 0.0, causal)

    return _both(theirs, inputs, training), _both(ours, inputs, training)


def _rms_norm(dtype: torch.dtype, training: bool) -> tuple[Run, Run]:
    inputs = [torch.randn(512, 2048).to(dtype).requires_grad_(training), torch.ones(2048, dtype=dtype)]
    ours = _both(lambda x, gamma: fused.FusedRMSNorm.apply(x, gamma, 1e-6), inputs, training)
    return _both(lambda x, gamma: functional.rms_norm(x, gamma.shape, gamma, 1e-6), inputs, training), ours


def _turned(p: Tensor) -> Tensor:
    first, second = p.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _rotary(dtype: torch.dtype, training: bool) -> tuple[Run, Run]:
    p = torch.randn(1, 32, 512, 64).to(dtype).requires_grad_(training)
    cos, sin = torch.rand(512, 64).to(dtype), torch.rand(512, 64).to(dtype)
    places = torch.arange(512)[None]
    inputs = [p, cos, sin]

    def theirs(p: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos, sin = cos[places].unsqueeze(1), sin[places].unsqueeze(1)
        return p * cos + _turned(p) * sin

    ours = _both(lambda p, cos, sin: fused.apply_rotary_pos_emb(p, cos, sin, places), inputs, training)
    return _both(theirs, inputs, training), ours


def _experts(dtype: torch.dtype, training: bool) -> tuple[Run, Run]:
    mixture = Mixture(256, 512, 1792, 8, 2, dtype)
    block = ExpertLoop(mixture)
    x = torch.randn(mixture.tokens, mixture.hidden).to(dtype).requires_grad_(training)
    weights, routing = torch.randn(mixture.tokens, mixture.experts).softmax(-1).topk(mixture.k)
    weights = weights.to(dtype)
    lists = [block.weights(name) for name in ("gate", "up", "down")]
    for part in lists if training else ():
        for weight in part:
            weight.requires_grad_()
    gate, up, down = lists

    def ours(x: Tensor) -> Any:
        return fused.mixture_of_experts(x, routing, weights, gate, up, down, True, "gelu", 0, mixture.experts - 1)

    return _both(lambda x: block(x, routing, weights), [x], training), _both(ours, [x], training)


def over_activations() -> Iterator[Cell]:
    """Yield cells for attention and the ops around it: the forward pass alone, and together with the backward pass."""
    for name, dtype in DTYPES.items():
        for mode in ("inference", "training"):
            training = mode == "training"
            for model in ATTENTION:
                make = partial(_attention, model, dtype, training)
                yield Cell("FusedSDPA", model, name, mode, "scaled_dot_product_attention", make)
            for op, model, theirs, build in (
                ("FusedRMSNorm", "Llama 1B, 512", "F.rms_norm", _rms_norm),
                ("apply_rotary_pos_emb", "Llama 1B, 512", "the formula of Llama", _rotary),
                ("mixture_of_experts", "8 experts, 256 tokens", "a loop over experts", _experts),
            ):
                yield Cell(op, model, name, mode, theirs, partial(build, dtype, training))


def measured(cell: Cell, seconds: float) -> str:
    """Measure ``cell`` and return its row of the table."""
    theirs, ours = cell.make()
    ratio = _ratio(theirs, ours, seconds)
    if ratio.value < GOAL:
        ratio = _ratio(theirs, ours, 5 * seconds)
    peaks = [peak_memory(run, CPU) for run in (ours, theirs)]
    # The ratio is meaningless for ops that need almost no memory.
    memory = f"{peaks[0] / peaks[1]:.2f}" if max(peaks) > LITTLE else "-"
    interval = f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"
    return f"| {cell.op} | {cell.model} | {cell.dtype} | {cell.mode} | {cell.theirs} | {interval} | {memory} |"


def _ratio(theirs: Run, ours: Run, seconds: float) -> Ratio:
    return race((theirs, ours), Clock("cpu", CPU), Effort(rounds=200, seconds=seconds), Team()).ratios[0]


def main() -> None:
    """Print the table row by row."""
    cells = [*over_activations(), *over_parameters()]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ops", nargs="*", default=sorted({cell.op for cell in cells}))
    options.add_argument("--models", nargs="*", default=sorted({cell.model for cell in cells}))
    options.add_argument("--dtypes", nargs="*", default=list(DTYPES))
    options.add_argument("--seconds", type=float, default=1.5, help="time to measure one ratio")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    capability = torch.backends.cpu.get_cpu_capability()
    heap = "tuned" if "MALLOC_TRIM_THRESHOLD_" in os.environ else "default"
    print(f"torch {torch.__version__}, {capability}, 1 thread, process CPU time, heap {heap}\n")
    print("| op | model | dtype | mode | PyTorch | PyTorch / ours | memory |\n|---|---|---|---|---|---|---|")
    for cell in cells:
        if cell.op in chosen.ops and cell.model in chosen.models and cell.dtype in chosen.dtypes:
            print(measured(cell, chosen.seconds), flush=True)


if __name__ == "__main__":
    main()
