"""Plain mixture of experts: loops over the experts, in the two usual forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


def mixture_of_experts(
    hidden_states: Tensor,
    expert_routing_table: Tensor,
    router_weights: Tensor,
    w1: Sequence[Tensor],
    w2: Sequence[Tensor],
    w3: Sequence[Tensor],
    activation: str,
    experts_min: int = 0,
) -> Tensor:
    """Each expert on the tokens routed to it, as the loop in Hugging Face's Mixtral does.

    Weights are [in, out]; the first of each list belongs to expert `experts_min`.
    """
    output = torch.zeros_like(hidden_states)
    for index in range(len(w3)):
        tokens, slots = torch.where(expert_routing_table == experts_min + index)
        x = hidden_states[tokens]
        y = ACTIVATIONS[activation](x @ w1[index]) * (x @ w2[index]) @ w3[index]
        output.index_add_(0, tokens, y * router_weights[tokens, slots].unsqueeze(1))
    return output


def dense_mixture_of_experts(
    hidden_states: Tensor,
    expert_routing_table: Tensor,
    router_weights: Tensor,
    w1: Sequence[Tensor],
    w2: Sequence[Tensor],
    w3: Sequence[Tensor],
    activation: str,
) -> Tensor:
    """Every expert on every token, with weight zero where not chosen: static shapes, more work."""
    weights = hidden_states.new_zeros(hidden_states.size(0), len(w3))
    weights = weights.scatter_add(1, expert_routing_table, router_weights)
    output = torch.zeros_like(hidden_states)
    for index in range(len(w3)):
        y = ACTIVATIONS[activation](hidden_states @ w1[index]) * (hidden_states @ w2[index]) @ w3[index]
        output = output + y * weights[:, index : index + 1]
    return output
