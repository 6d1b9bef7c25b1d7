"""Clipping gradients by their norm: a norm and a product for each tensor against all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, weights_of
from perftool.bench.workloads.weights import layered_network, training_step
from perftool.fused import FusedClipNorm, FusedSGD

# The gradients stay the same tensors from run to run: a limit that falls a little each time is always exceeded.
_FALL = 0.999
_STEP_LIMIT = 1e-3


def build(form: FormName, setting: Setting) -> Form:
    """clip_grad_norm_ with its loop over tensors, or FusedClipNorm."""
    make = _plain if form == "naive" else _fused
    params = weights_of(setting)
    # A fused optimizer, in both, keeps many small gradients in one buffer.
    optimizer = FusedSGD(params, lr=0.0)
    for _ in range(3):
        optimizer.step()
    clip = make(params)
    limit = float(nn.utils.get_total_norm([param.grad for param in params if param.grad is not None]))

    def run() -> None:
        nonlocal limit
        limit *= _FALL
        clip(limit)

    title = "clip_grad_norm_(foreach=False)" if form == "naive" else "FusedClipNorm"
    return Form(title, run, lambda: [param.grad for param in params if param.grad is not None], _step(make, setting))


def _plain(params: Sequence[nn.Parameter]) -> Callable[[float], object]:
    return lambda limit: nn.utils.clip_grad_norm_(params, limit, foreach=False)


def _fused(params: Sequence[nn.Parameter]) -> Callable[[float], object]:
    clip = FusedClipNorm(params, 1.0)

    def run(limit: float) -> None:
        clip.max_norm = torch.tensor(limit)
        clip.clip_norm(params)

    return run


def _step(make: Callable[[Sequence[nn.Parameter]], Callable[[float], object]], setting: Setting) -> Callable[[], object]:
    model = layered_network(setting)
    clip = make(list(model.parameters()))
    optimizer = FusedSGD(model.parameters(), lr=1e-3)
    return training_step(model, optimizer, setting, before=lambda: clip(_STEP_LIMIT))


BENCHMARK = Benchmark(
    name="fused_clip_norm",
    rules=("FUS102",),
    summary="the norm of all gradients at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
