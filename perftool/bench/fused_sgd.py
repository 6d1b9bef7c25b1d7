"""SGD with momentum: one tensor after the other against all of them at once."""

from __future__ import annotations

from typing import Any

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedSGD

_SETTINGS: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 0.01}


def build(form: FormName, setting: Setting) -> Form:
    """torch's SGD, which loops over tensors on the CPU, FusedSGD, or torch's own fused kernel."""
    if form == "naive":
        return optimizer_form("torch.optim.SGD", lambda params: torch.optim.SGD(params, **_SETTINGS), setting)
    if form == "torch":
        return optimizer_form(
            "torch.optim.SGD(fused=True)", lambda params: torch.optim.SGD(params, fused=True, **_SETTINGS), setting
        )
    return optimizer_form("FusedSGD", lambda params: FusedSGD(params, **_SETTINGS), setting)


BENCHMARK = Benchmark(
    name="fused_sgd",
    rules=("FUS101",),
    summary="SGD over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
    torch_best=True,
)
