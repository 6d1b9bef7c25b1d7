"""SGD with momentum: one tensor after the other against all of them at once."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import SIZES, optimizer_form
from perftool.fused import FusedSGD


def build(form: FormName, setting: Setting) -> Form:
    """torch's SGD with its loop over tensors, or FusedSGD."""
    if form == "naive":
        return optimizer_form(
            "torch.optim.SGD(foreach=False)",
            lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9, weight_decay=0.01, foreach=False),
            setting,
        )
    return optimizer_form(
        "FusedSGD", lambda params: FusedSGD(params, lr=1e-3, momentum=0.9, weight_decay=0.01), setting
    )


BENCHMARK = Benchmark(
    name="fused_sgd",
    rules=("FUS101",),
    summary="SGD over all tensors at once instead of one by one",
    build=build,
    sizes=SIZES,
    traced_size="small",
    tolerance=1e-5,
    tuned_heap=True,
)
