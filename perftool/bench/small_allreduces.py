"""Gradients reduced one by one after backward, or in the buckets of DistributedDataParallel."""

from __future__ import annotations

import torch
import torch.distributed as dist

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import gradients, layers, on_ranks, step_form, training_step


def build(form: FormName, setting: Setting) -> Form:
    """Return a loop over parameters, DistributedDataParallel, or DDP with all of torch's options for a static model."""
    if form == "advised":
        return step_form("DistributedDataParallel", setting)
    if form == "torch":
        options = {"static_graph": True, "gradient_as_bucket_view": True}
        return step_form("DistributedDataParallel(static_graph=True, gradient_as_bucket_view=True)", setting, **options)
    model = layers(setting)

    @torch.no_grad()
    def reduce() -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= setting.ranks

    return Form("all_reduce for each parameter", training_step(model, setting, reduce), lambda: gradients(model))


BENCHMARK = on_ranks(
    name="small_allreduces",
    rules=("COL101",),
    summary="Gradients reduced in buckets instead of one by one",
    build=build,
    traced_size="recorded",
    sizes=("small", "recorded", "large"),
    torch_best=True,
)
