"""Attention as matmul, softmax, matmul, or as one op that never stores the whole score matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.attention import heads_of, plain_causal_attention
from perftool.fused import FusedSDPA

# Tokens of the sequence; a batch is a single sequence.
_TOKENS = {"small": 512, "large": 2048}


def build(form: FormName, setting: Setting) -> Form:
    """Separate ops, FusedSDPA, or torch's op."""
    attention, title = _WAYS[form]
    q, k, v = heads_of(setting, 1, _TOKENS[setting.size], training=True)
    upstream = torch.randn(q.shape, generator=setting.generator()).to(setting.device)
    latest: list[torch.Tensor] = []

    def run() -> None:
        output = attention(q, k, v)
        latest[:] = [output, *torch.autograd.grad(output, (q, k, v), upstream)]

    return Form(title, run, lambda: latest)


def _fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    output = FusedSDPA.apply(q, k, v, None, 0.0, True)
    assert isinstance(output, torch.Tensor)
    return output


def _torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


_WAYS: dict[FormName, tuple[Callable[..., torch.Tensor], str]] = {
    "naive": (plain_causal_attention, "softmax between matmuls"),
    "advised": (_fused, "FusedSDPA"),
    "torch": (_torch, "F.scaled_dot_product_attention"),
}

BENCHMARK = Benchmark(
    name="sdpa",
    rules=("FUS103",),
    summary="Attention as one op instead of matmul, softmax, matmul",
    build=build,
    sizes=tuple(_TOKENS),
    traced_size="small",
    tolerance=1e-4,
    tuned_heap=True,
    torch_best=True,
)
