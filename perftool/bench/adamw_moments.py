"""AdamW's moments in float32, or in bfloat16 by ``moments_dtype``: half of the state."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.optimizers import weights_of
from perftool.fused import FusedAdamW


def build(form: FormName, setting: Setting) -> Form:
    """A new FusedAdamW and its first step, which makes the state that it will keep."""
    weights = weights_of(setting)
    dtype = None if form == "naive" else torch.bfloat16
    kept: list[FusedAdamW] = []

    def run() -> None:
        # The state of the run before is gone before that of this one is made.
        kept.clear()
        kept.append(FusedAdamW(weights, lr=1e-3, moments_dtype=dtype))
        kept[0].step()

    title = "FusedAdamW" if form == "naive" else "FusedAdamW(moments_dtype=torch.bfloat16)"
    return Form(title, run, lambda: weights, close=kept.clear)


BENCHMARK = Benchmark(
    name="adamw_moments",
    rules=(),
    summary="moments in bfloat16 instead of float32",
    build=build,
    sizes=("small", "large"),
    traced_size="small",
    tolerance=0.01,
    quantity="memory",
)
