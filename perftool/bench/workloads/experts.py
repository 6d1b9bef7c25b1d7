"""A mixture of experts: weights, routed tokens, and the usual loop and its alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from perftool.bench.harness.case import Setting


@dataclass(frozen=True)
class Mixture:
    """The sizes of a mixture, with ``k`` experts for each token."""

    tokens: int
    hidden: int
    ffn: int
    experts: int
    k: int
    dtype: torch.dtype = torch.float32


MIXTURES = {
    "small": Mixture(tokens=32, hidden=64, ffn=224, experts=8, k=2),
    "large": Mixture(tokens=256, hidden=1024, ffn=3584, experts=8, k=2),
}


class Expert(nn.Module):
    """Gate, up and down projections, as in model code."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.gate = nn.Linear(mixture.hidden, mixture.ffn, bias=False, dtype=mixture.dtype)
        self.up = nn.Linear(mixture.hidden, mixture.ffn, bias=False, dtype=mixture.dtype)
        self.down = nn.Linear(mixture.ffn, mixture.hidden, bias=False, dtype=mixture.dtype)
        self.activation = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [tokens, hidden] to the same shape."""
        result: torch.Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return result


class ExpertLoop(nn.Module):
    """The loop in published Mixtral code, which runs each expert on the tokens routed to it, with dynamic shapes."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Expert(mixture) for _ in range(mixture.experts)])

    def forward(self, x: torch.Tensor, routing: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the chosen experts' outputs."""
        output = torch.zeros_like(x)
        chosen = nn.functional.one_hot(routing, len(self.experts)).permute(2, 1, 0)
        for index in chosen.sum(dim=(1, 2)).nonzero():
            slot, token = torch.where(chosen[index].squeeze(0))
            result = self.experts[index](x[token]) * weights[token, slot, None]
            output.index_add_(0, token, result)
        return output

    def weights(self, name: str) -> list[torch.Tensor]:
        """Return the weights ``gate``, ``up`` or ``down`` of all experts, stored as [out, in]."""
        return [getattr(expert, name).weight.detach() for expert in self.experts]


def routed_tokens(mixture: Mixture, setting: Setting) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens [tokens, hidden], the experts chosen for each [tokens, k], and their weights."""
    generator = setting.generator()
    x = torch.randn(mixture.tokens, mixture.hidden, generator=generator).to(setting.device, mixture.dtype)
    scores = torch.randn(mixture.tokens, mixture.experts, generator=generator).softmax(-1)
    weights, routing = scores.topk(mixture.k, dim=-1)
    return x, routing.to(setting.device), weights.to(setting.device, mixture.dtype)


def grouped_experts(
    x: torch.Tensor,
    routing: torch.Tensor,
    weights: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    """ExpertLoop with torch's grouped matmuls over tokens sorted by expert; weights are [experts, in, out]."""
    experts, order = routing.reshape(-1).sort(stable=True)
    ends = torch.bincount(experts, minlength=len(gate)).cumsum(0).int()
    tokens = torch.div(order, routing.size(1), rounding_mode="floor")
    rows = x[tokens]
    hidden = nn.functional.gelu(torch._grouped_mm(rows, gate, ends)) * torch._grouped_mm(rows, up, ends)
    scaled = torch._grouped_mm(hidden, down, ends) * weights.reshape(-1, 1)[order]
    return torch.zeros_like(x).index_add_(0, tokens, scaled)


def dense_mixture_of_experts(
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w1: Sequence[torch.Tensor],
    w2: Sequence[torch.Tensor],
    w3: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Runs every expert on every token, with weight zero if the router did not choose that expert, so shapes are
    static. Weights are [in, out]."""
    weights = hidden_states.new_zeros(hidden_states.size(0), len(w3))
    weights = weights.scatter_add(1, expert_routing_table, router_weights)
    output = torch.zeros_like(hidden_states)
    for index in range(len(w3)):
        y = nn.functional.gelu(hidden_states @ w1[index]) * (hidden_states @ w2[index]) @ w3[index]
        output = output + y * weights[:, index : index + 1]
    return output
