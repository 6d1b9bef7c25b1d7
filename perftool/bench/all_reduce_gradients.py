"""Gradients of a small model reduced through hooks during the backward pass, or all together after it."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import gradients, layers, on_ranks, step_form, training_step
from perftool.fused import all_reduce_gradients


def build(form: FormName, setting: Setting) -> Form:
    """Return a step with DistributedDataParallel (plain or with its options for static models) or
    ``all_reduce_gradients``.
    """
    if form == "torch":
        options = {"static_graph": True, "gradient_as_bucket_view": True}
        return step_form("DistributedDataParallel(static_graph=True, gradient_as_bucket_view=True)", setting, **options)
    model = layers(setting)
    if form == "naive":
        model = DistributedDataParallel(model)
        return Form("DistributedDataParallel", training_step(model, setting), lambda: gradients(model))
    step = training_step(model, setting, lambda: all_reduce_gradients(model, torch.float32))
    return Form("all_reduce_gradients(model) after backward", step, lambda: gradients(model))


BENCHMARK = on_ranks(
    name="all_reduce_gradients",
    rules=("COL107",),
    summary="Gradients of a small model reduced together after backward instead of through hooks",
    build=build,
    traced_size="tiny",
    sizes=("tiny", "small"),
    torch_best=True,
)
