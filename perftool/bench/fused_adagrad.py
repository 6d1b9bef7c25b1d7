"""Adagrad: one tensor after the other against all of them at once."""

from __future__ import annotations

from typing import Any

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedAdagrad

_SETTINGS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.01}


def build(form: FormName, setting: Setting) -> Form:
    """torch's Adagrad, which loops over tensors on the CPU, FusedAdagrad, or torch's own fused kernel."""
    if form == "naive":
        return optimizer_form("torch.optim.Adagrad", lambda params: torch.optim.Adagrad(params, **_SETTINGS), setting)
    if form == "torch":
        return optimizer_form(
            "torch.optim.Adagrad(fused=True)",
            lambda params: torch.optim.Adagrad(params, fused=True, **_SETTINGS),
            setting,
        )
    return optimizer_form("FusedAdagrad", lambda params: FusedAdagrad(params, **_SETTINGS), setting)


BENCHMARK = Benchmark(
    name="fused_adagrad",
    rules=("FUS101",),
    summary="Adagrad over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
    torch_best=True,
)
