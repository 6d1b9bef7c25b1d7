"""``all_reduce_gradients`` with a float32 buffer, or with a bfloat16 buffer, which halves the bytes sent."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import gradients, layers, on_ranks, training_step
from perftool.fused import all_reduce_gradients


def build(form: FormName, setting: Setting) -> Form:
    """Return a step with one all-reduce after backward, in float32 or in bfloat16."""
    dtype = torch.float32 if form == "naive" else torch.bfloat16
    model = layers(setting)
    step = training_step(model, setting, lambda: all_reduce_gradients(model, dtype))
    return Form(f"all_reduce_gradients(model, {dtype})", step, lambda: gradients(model))


# The tolerance is large because bfloat16 has only 8 significant bits.
BENCHMARK = on_ranks(
    name="all_reduce_bf16",
    rules=(),
    summary="Gradients reduced in bfloat16 instead of float32",
    build=build,
    traced_size="tiny",
    sizes=("small", "large", "tiny"),
    tolerance=0.02,
)
