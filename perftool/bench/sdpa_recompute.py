"""FusedSDPA keeps the attention probabilities for backward, or recomputes them."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.attention import heads_of
from perftool.fused import FusedSDPA

_TOKENS = {"small": 512, "large": 2048}


def build(form: FormName, setting: Setting) -> Form:
    """Forward and backward over one sequence, with ``recompute_mode`` off or on."""
    q, k, v = heads_of(setting, 1, _TOKENS[setting.size], training=True)
    upstream = torch.randn(q.shape, generator=setting.generator()).to(setting.device)
    recompute = form == "advised"
    latest: list[torch.Tensor] = []

    def run() -> None:
        output = FusedSDPA.apply(q, k, v, None, 0.0, True, None, "None", recompute)
        assert isinstance(output, torch.Tensor)
        latest[:] = [output, *torch.autograd.grad(output, (q, k, v), upstream)]

    return Form(f"FusedSDPA, recompute_mode={recompute}", run, lambda: latest)


BENCHMARK = Benchmark(
    name="sdpa_recompute",
    rules=(),
    summary="Attention that recomputes probabilities in backward instead of storing them",
    build=build,
    sizes=tuple(_TOKENS),
    traced_size="small",
    tolerance=1e-4,
    quantity="memory",
)
