"""AdamW: one tensor after the other against all of them at once."""

from __future__ import annotations

from typing import Any

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedAdamW

# The two place epsilon differently while bias correction is active; 0 leaves only rounding between them.
_SETTINGS: dict[str, Any] = {"lr": 1e-3, "eps": 0.0, "weight_decay": 0.01}


def build(form: FormName, setting: Setting) -> Form:
    """torch's AdamW, which loops over tensors on the CPU, FusedAdamW, or torch's own fused kernel."""
    if form == "naive":
        return optimizer_form("torch.optim.AdamW", lambda params: torch.optim.AdamW(params, **_SETTINGS), setting)
    if form == "torch":
        return optimizer_form(
            "torch.optim.AdamW(fused=True)", lambda params: torch.optim.AdamW(params, fused=True, **_SETTINGS), setting
        )
    return optimizer_form("FusedAdamW", lambda params: FusedAdamW(params, **_SETTINGS), setting)


BENCHMARK = Benchmark(
    name="fused_adamw",
    rules=("FUS101",),
    summary="AdamW over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
    torch_best=True,
)
