"""LARS: one tensor after the other against all of them at once."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.bench.workloads.plain_optimizers import Lars
from perftool.fused import FusedLars, FusedResourceApplyMomentum

_DECAY = 0.01
# LARS overwrites the gradients, which stay the same tensors from run to run here. With these two they keep the size of
# the weights instead of shrinking to nothing, and numbers near nothing are slow to compute with.
_RATE = _EETA = 1.0


def build(form: FormName, setting: Setting) -> Form:
    """LARS as a loop over tensors, in place, or FusedLars around FusedResourceApplyMomentum."""
    if form == "naive":
        return optimizer_form("a loop over tensors", _plain, setting)
    return optimizer_form("FusedLars", _fused, setting)


def _plain(params: Iterable[nn.Parameter]) -> Lars:
    return Lars(params, lr=_RATE, eeta=_EETA, weight_decay=_DECAY)


def _fused(params: Iterable[nn.Parameter]) -> FusedLars:
    weights = list(params)
    base = FusedResourceApplyMomentum(weights, lr=_RATE, momentum=0.9, weight_decay=_DECAY)
    return FusedLars(base, [int(weight.dim() > 1) for weight in weights], eeta=_EETA)


BENCHMARK = Benchmark(
    name="fused_lars",
    rules=("FUS101",),
    summary="LARS over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
