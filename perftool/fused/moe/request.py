"""What one mixture-of-experts call asks for: its two forms of arguments, checked and brought to one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from perftool.fused.reference.moe import ACTIVATIONS

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class MixtureRequest:
    """A call's arguments. The first weight of each list is that of expert `first`.

    `up` is None when `gate` holds gate and up side by side. `activation` is a key of ACTIVATIONS.
    """

    hidden_states: torch.Tensor
    routing: torch.Tensor
    router_weights: torch.Tensor
    gate: tuple[torch.Tensor, ...]
    up: tuple[torch.Tensor, ...] | None
    down: tuple[torch.Tensor, ...]
    permuted: bool
    activation: str
    first: int
    last: int
    measurement_mode: bool | None

    @property
    def ffn(self) -> int:
        """The width between an expert's products."""
        return self.down[0].size(1 if self.permuted else 0)

    def oriented(self, weights: tuple[torch.Tensor, ...], wanted: Sequence[int]) -> list[torch.Tensor]:
        """The weights of some experts, counted from `first`, as [in, out]."""
        return [weights[index].t() if self.permuted else weights[index] for index in wanted]


def mixture_request(
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w1: Sequence[torch.Tensor],
    w2: Sequence[torch.Tensor] | None,
    w3: Sequence[torch.Tensor],
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool | None = None,
) -> MixtureRequest:
    """The call with gate (w1), up (w2) and down (w3) weights; without w2 gate and up are side by side in w1."""
    mine = (experts_min, experts_max)
    request = MixtureRequest(
        hidden_states,
        expert_routing_table,
        router_weights,
        _local(w1, "w12" if w2 is None else "w1", *mine),
        None if w2 is None else _local(w2, "w2", *mine),
        _local(w3, "w3", *mine),
        permuted_weights,
        activation,
        *mine,
        measurement_mode,
    )
    return _checked(request)


def _local(weights: Sequence[torch.Tensor], name: str, first: int, last: int) -> tuple[torch.Tensor, ...]:
    """The weights of experts first..last; the list may hold just these or all experts."""
    if not 0 <= first <= last:
        raise ValueError(f"experts_min and experts_max must satisfy 0 <= min <= max, not {first} and {last}")
    count = last - first + 1
    if len(weights) != count and len(weights) <= last:
        raise ValueError(f"{name} holds {len(weights)} experts; experts {first} to {last} need {count}")
    return tuple(weights if len(weights) == count else weights[first : last + 1])


def _checked(request: MixtureRequest) -> MixtureRequest:
    if request.activation not in ACTIVATIONS:
        raise RuntimeError(f'Activation "{request.activation}" not found among MoeActivationMode_t enum values.')
    _check_tokens(request)
    hidden, dtype = request.hidden_states.size(1), request.hidden_states.dtype
    joined = request.up is None
    gate = (hidden, 2 * request.ffn if joined else request.ffn)
    for name, weights, shape in (
        ("w12" if joined else "w1", request.gate, gate),
        ("w2", request.up or (), gate),
        ("w3", request.down, (request.ffn, hidden)),
    ):
        expected = shape[::-1] if request.permuted else shape
        for weight in weights:
            if weight.shape != expected:
                raise ValueError(f"every {name} must be {list(expected)}, not {list(weight.shape)}")
            if weight.dtype != dtype:
                raise ValueError(f"every {name} must have the dtype of hidden_states, {dtype}")
    return request


def _check_tokens(request: MixtureRequest) -> None:
    if request.hidden_states.dim() != 2:
        raise ValueError("hidden_states must be [tokens, hidden]")
    if request.hidden_states.dtype not in DTYPES:
        raise ValueError(f"hidden_states must be float32, float16 or bfloat16, not {request.hidden_states.dtype}")
    if request.routing.dim() != 2 or request.routing.size(0) != request.hidden_states.size(0):
        raise ValueError("expert_routing_table must be [tokens, experts per token]")
    if request.routing.dtype.is_floating_point or request.routing.dtype == torch.bool:
        raise ValueError("expert_routing_table must hold integers")
    if request.router_weights.shape != request.routing.shape:
        raise ValueError("router_weights must have the shape of expert_routing_table")
