"""Attention: product, softmax, product against one op that never holds the whole matrix of scores."""

from __future__ import annotations

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.attention import heads_of, plain_causal_attention
from perftool.fused import FusedSDPA

# Tokens; a forward and a backward pass over one sequence of 8 heads.
_TOKENS = {"small": 512, "large": 2048}


def build(form: FormName, setting: Setting) -> Form:
    """The formula as model code has it, or FusedSDPA."""
    q, k, v = heads_of(setting, 1, _TOKENS[setting.size], training=True)
    upstream = torch.randn(q.shape, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []

    def run() -> None:
        output = plain_causal_attention(q, k, v) if form == "naive" else _fused(q, k, v)
        latest[:] = [output, *torch.autograd.grad(output, (q, k, v), upstream)]

    return Form("softmax between products" if form == "naive" else "FusedSDPA", run, lambda: latest)


def _fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    output = FusedSDPA.apply(q, k, v, None, 0.0, True)
    assert isinstance(output, torch.Tensor)
    return output


BENCHMARK = Benchmark(
    name="sdpa",
    rules=("FUS103",),
    summary="attention as one op instead of product, softmax, product",
    build=build,
    sizes=tuple(_TOKENS),
    traced_size="small",
    tolerance=1e-4,
    tuned_heap=True,
)
