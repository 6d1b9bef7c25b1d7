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
_LIMIT_OF_STEPS = 1e-3

Clip = Callable[[float], object]


def build(form: FormName, setting: Setting) -> Form:
    """clip_grad_norm_ with its loop over tensors, or FusedClipNorm, both beside a fused optimizer."""
    title, clip_of = ("clip_grad_norm_(foreach=False)", _plain) if form == "naive" else ("FusedClipNorm", _fused)
    timed = _Timed(weights_of(setting), clip_of)
    model = layered_network(setting)
    optimizer, clip = FusedSGD(model.parameters(), lr=1e-3), clip_of(list(model.parameters()))
    step = training_step(model, optimizer, setting, lambda: clip(_LIMIT_OF_STEPS))
    return Form(title, timed.run, timed.gradients, step)


class _Timed:
    def __init__(self, params: Sequence[nn.Parameter], clip_of: Callable[[Sequence[nn.Parameter]], Clip]) -> None:
        self._params = params
        self._clip = clip_of(params)
        self._limit = float(nn.utils.get_total_norm(self.gradients()))

    def run(self) -> None:
        self._limit *= _FALL
        self._clip(self._limit)

    def gradients(self) -> list[torch.Tensor]:
        return [param.grad for param in self._params if param.grad is not None]


def _plain(params: Sequence[nn.Parameter]) -> Clip:
    return lambda limit: nn.utils.clip_grad_norm_(params, limit, foreach=False)


def _fused(params: Sequence[nn.Parameter]) -> Clip:
    clip = FusedClipNorm(params, 1.0)

    def run(limit: float) -> None:
        clip.max_norm_t = torch.tensor([limit])
        clip.clip_norm(params)

    return run


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
