"""Inference with wide layers, one sample at a time or in one batch. On a CPU, each call reads all weights."""

from __future__ import annotations

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

# The number of samples, and the width of the layers.
_SHAPES = {"small": (16, 512), "large": (32, 2048)}
_LAYERS = 4


def build(form: FormName, setting: Setting) -> Form:
    """Inference on all samples: one call per sample, or a single call for all samples."""
    torch.manual_seed(setting.seed)
    samples, width = _SHAPES[setting.size]
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(_LAYERS))).to(setting.device)
    inputs = torch.randn(samples, width, generator=setting.generator()).to(setting.device)
    batch = 1 if form == "naive" else samples
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def run() -> None:
        latest[:] = [torch.cat([model(part) for part in torch.split(inputs, batch)])]

    return Form(f"batches of {batch}", run, lambda: latest)


BENCHMARK = Benchmark(
    name="few_rows",
    rules=("BAT104",),
    summary="Samples in one batch instead of one by one, so that the weights are read only once",
    build=build,
    sizes=tuple(_SHAPES),
    traced_size="small",
    tolerance=1e-4,
)
