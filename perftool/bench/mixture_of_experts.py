"""A mixture of experts: a loop over experts, or one op for all of them (torch's, or Gaudi's on a Gaudi)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.experts import (
    MIXTURES,
    ExpertLoop,
    Mixture,
    dense_mixture_of_experts,
    grouped_experts,
    routed_tokens,
)
from perftool.fused import mixture_of_experts

# For the last size, the naive form runs every expert on every token, which keeps shapes static.
_MIXTURES = {
    **MIXTURES,
    "static": Mixture(tokens=256, hidden=512, ffn=1792, experts=8, k=2),
}


def build(form: FormName, setting: Setting) -> Form:
    """Return the usual loop, grouped matmuls, or Gaudi's op, on the same weights."""
    torch.manual_seed(setting.seed)
    mixture = _MIXTURES[setting.size]
    block = ExpertLoop(mixture).to(setting.device)
    x, routing, weights = routed_tokens(mixture, setting)
    gate, up, down = (block.weights(name) for name in ("gate", "up", "down"))

    def static() -> torch.Tensor:
        turned = [[weight.t() for weight in part] for part in (gate, up, down)]
        return dense_mixture_of_experts(x, routing, weights, turned[0], turned[1], turned[2])

    def loop() -> torch.Tensor:
        output: torch.Tensor = block(x, routing, weights)
        return output

    def gaudi_op() -> torch.Tensor:
        output = mixture_of_experts(x, routing, weights, gate, up, down, True, "gelu", 0, mixture.experts - 1)
        assert isinstance(output, torch.Tensor)
        return output

    if form == "advised" and setting.device.type == "hpu":
        return _form("mixture_of_experts", gaudi_op)
    if form == "advised":
        stacked = [torch.stack(part).transpose(1, 2) for part in (gate, up, down)]
        return _form("torch._grouped_mm", lambda: grouped_experts(x, routing, weights, *stacked))
    if setting.size == "static":
        return _form("every expert on every token", static)
    return _form("a loop over experts", loop)


def _form(title: str, forward: Callable[[], torch.Tensor]) -> Form:
    latest: list[torch.Tensor] = []

    @torch.no_grad()
    def run() -> None:
        latest[:] = [forward()]

    return Form(title, run, lambda: latest)


BENCHMARK = Benchmark(
    name="mixture_of_experts",
    rules=("FUS104",),
    summary="One op for all experts instead of a loop over them",
    build=build,
    sizes=tuple(_MIXTURES),
    traced_size="small",
    tolerance=1e-5,
)
