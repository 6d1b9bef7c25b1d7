"""Clipping gradients by their norm: torch's default against FusedClipNorm.

On the CPU and on CUDA torch's default works on lists of tensors, and there is little to win; on a Gaudi, whose device
has no such ops, it loops over tensors. Only there the rule has something to say, so it is shown simulated traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, weights_of
from perftool.fused import FusedClipNorm

# The gradients stay the same tensors from run to run: a limit that falls a little each time is always exceeded.
_FALL = 0.999

Clip = Callable[[float], object]


def build(form: FormName, setting: Setting) -> Form:
    """clip_grad_norm_ with torch's defaults, which are torch's best, or FusedClipNorm."""
    title, clip_of = ("clip_grad_norm_", _plain) if form == "naive" else ("FusedClipNorm", _fused)
    timed = _Timed(weights_of(setting), clip_of)
    return Form(title, timed.run, timed.gradients)


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
    return lambda limit: nn.utils.clip_grad_norm_(params, limit)


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
    script="fused_clip_norm.py",
)
