"""AdamW: one tensor after the other against all of them at once."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedAdamW


def build(form: FormName, setting: Setting) -> Form:
    """torch's AdamW with its loop over tensors, or FusedAdamW with the same formula.

    The two place epsilon differently while bias correction is active; 0 leaves only rounding between them.
    """
    if form == "naive":
        return optimizer_form(
            "torch.optim.AdamW(foreach=False)",
            lambda params: torch.optim.AdamW(params, lr=1e-3, eps=0.0, weight_decay=0.01, foreach=False),
            setting,
        )
    return optimizer_form("FusedAdamW", lambda params: FusedAdamW(params, lr=1e-3, eps=0.0, weight_decay=0.01), setting)


BENCHMARK = Benchmark(
    name="fused_adamw",
    rules=("FUS101",),
    summary="AdamW over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
