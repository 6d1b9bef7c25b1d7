"""Adagrad: one tensor after the other against all of them at once."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedAdagrad


def build(form: FormName, setting: Setting) -> Form:
    """torch's Adagrad with its loop over tensors, or FusedAdagrad."""
    if form == "naive":
        return optimizer_form(
            "torch.optim.Adagrad(foreach=False)",
            lambda params: torch.optim.Adagrad(params, lr=1e-3, weight_decay=0.01, foreach=False),
            setting,
        )
    return optimizer_form("FusedAdagrad", lambda params: FusedAdagrad(params, lr=1e-3, weight_decay=0.01), setting)


BENCHMARK = Benchmark(
    name="fused_adagrad",
    rules=("FUS101",),
    summary="Adagrad over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
