"""A mixture of experts whose first two matmuls are separate, or joined into one matmul with a single weight."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.experts import MIXTURES, ExpertLoop, routed_tokens
from perftool.fused import mixture_of_experts


def build(form: FormName, setting: Setting) -> Form:
    """Return ``mixture_of_experts`` with w1 and w2, or with w12, which contains both."""
    torch.manual_seed(setting.seed)
    mixture = MIXTURES[setting.size]
    block = ExpertLoop(mixture).to(setting.device)
    x, routing, weights = routed_tokens(mixture, setting)
    gate, up, down = (block.weights(name) for name in ("gate", "up", "down"))
    joined = [torch.cat(pair) for pair in zip(gate, up, strict=True)]
    first = [gate, up] if form == "naive" else [joined]
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def run() -> None:
        output = mixture_of_experts(x, routing, weights, *first, down, True, "gelu", 0, mixture.experts - 1)
        assert isinstance(output, torch.Tensor)
        latest[:] = [output]

    return Form("w1 and w2" if form == "naive" else "w12", run, lambda: latest)


BENCHMARK = Benchmark(
    name="mixture_of_experts_w12",
    rules=(),
    summary="Gate and up projections of an expert in one matmul instead of two",
    build=build,
    sizes=tuple(MIXTURES),
    traced_size="small",
    tolerance=1e-5,
)
