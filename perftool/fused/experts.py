"""`mixture_of_experts` with Gaudi's two sets of arguments, on any device.

Each expert is three plain products over the tokens that chose it. The routing is sorted once, so the host waits for the
device only once.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch

from perftool.fused.dispatch import Implementation, always, choose, register
from perftool.fused.reference.moe import ACTIVATIONS
from perftool.fused.reference.moe import mixture_of_experts as reference_mixture

OP = "mixture_of_experts"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

Measured = tuple[torch.Tensor, torch.Tensor]
Weights = Sequence[torch.Tensor]


def _native_obstacle() -> str | None:
    try:
        importlib.import_module("habana_frameworks.torch.core")
    except ImportError as error:
        return str(error)
    return None if hasattr(torch.ops.hpu, OP) else f"torch.ops.hpu has no {OP}"


register(Implementation(OP, "habana", ("hpu",), _native_obstacle))
register(Implementation(OP, "fast", ("cpu", "cuda"), always))
register(Implementation(OP, "reference", ("*",), always))


@overload
def mixture_of_experts(
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w1: Weights,
    w2: Weights,
    w3: Weights,
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool | None = None,
) -> torch.Tensor | Measured: ...


@overload
def mixture_of_experts(
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w12: Weights,
    w3: Weights,
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool | None = None,
) -> torch.Tensor | Measured: ...


def mixture_of_experts(*args: Any, **kwargs: Any) -> torch.Tensor | Measured:
    """Σ over a token's experts of routerweight · (act(x·w1) ⊙ (x·w2))·w3, in the shape of hidden_states.

    hidden_states is [tokens, hidden], expert_routing_table (integers) and router_weights [tokens, k], each
    w1 and w2 [hidden, ffn], w12 [hidden, 2·ffn] (w1 left), w3 [ffn, hidden]; all transposed with
    `permuted_weights`. `activation` is gelu (exact), relu or silu. Only experts from experts_min to
    experts_max, inclusive, contribute; the weight lists hold these, or all experts.

    With a value for `measurement_mode` the result is a pair: the output, and per expert the largest input element of
    its last product (float32, plain maximum; 0 for an expert without tokens). RuntimeError for an unknown activation,
    ValueError for shapes and dtypes that do not fit.
    """
    bound = (_JOINED if _is_joined(args, kwargs) else _SEPARATE).bind(*args, **kwargs)
    choice = choose(OP, bound.arguments["hidden_states"].device.type)
    if choice.name == "habana":
        native: torch.Tensor | Measured = torch.ops.hpu.mixture_of_experts(*args, **kwargs)
        return native
    bound.apply_defaults()
    request = _checked(_request(**bound.arguments))
    output, largest = _plain(request) if choice.name == "reference" else _expert_by_expert(request)
    return output if request.measurement_mode is None else (output, largest)


def _signature(*weights: str) -> inspect.Signature:
    names = ("hidden_states", "expert_routing_table", "router_weights", *weights)
    names += ("permuted_weights", "activation", "experts_min", "experts_max")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    last = inspect.Parameter("measurement_mode", kind, default=None)
    return inspect.Signature([*(inspect.Parameter(name, kind) for name in names), last])


_SEPARATE, _JOINED = _signature("w1", "w2", "w3"), _signature("w12", "w3")
# Shown by help(); the overloads describe both forms for type checkers.
mixture_of_experts.__signature__ = _SEPARATE  # type: ignore[attr-defined]


def _is_joined(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True for the w12, w3 form: it has two lists of weights where the other one has three."""
    if "w12" in kwargs or "w1" in kwargs or "w2" in kwargs:
        return "w12" in kwargs
    lists = sum(isinstance(argument, (list, tuple)) for argument in args)
    return lists + ("w3" in kwargs) == 2


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

    def weights(self, index: int) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Gate, up (None where gate holds both) and down weights of an expert, counted from `first`, as [in, out]."""
        up = None if self.up is None else self.up[index]
        gate, down = self.gate[index], self.down[index]
        if self.permuted:
            return gate.t(), None if up is None else up.t(), down.t()
        return gate, up, down


def _request(
    hidden_states: torch.Tensor,
    expert_routing_table: torch.Tensor,
    router_weights: torch.Tensor,
    w3: Weights,
    permuted_weights: bool,
    activation: str,
    experts_min: int,
    experts_max: int,
    measurement_mode: bool | None,
    **first: Weights,
) -> MixtureRequest:
    mine = experts_min, experts_max
    gate, *up = (_local(weights, name, *mine) for name, weights in first.items())
    tokens = hidden_states, expert_routing_table, router_weights
    weights = gate, up[0] if up else None, _local(w3, "w3", *mine)
    return MixtureRequest(*tokens, *weights, permuted_weights, activation, *mine, measurement_mode)


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


def _expert_by_expert(request: MixtureRequest) -> Measured:
    """Each expert on its tokens, found by one sort, so the host waits for the device once and not once per expert."""
    k = request.routing.size(1)
    experts, order = request.routing.reshape(-1).sort(stable=True)
    counts = torch.bincount(experts, minlength=request.last + 1).tolist()
    x, scales = request.hidden_states, request.router_weights.reshape(-1, 1).to(request.hidden_states.dtype)
    output, largest = torch.zeros_like(x), x.new_zeros(len(request.down), dtype=torch.float32)
    start = sum(counts[: request.first])
    for index, count in enumerate(counts[request.first : request.last + 1]):
        slots, start = order[start : start + count], start + count
        if count:
            tokens = torch.div(slots, k, rounding_mode="floor")
            rows = _expert(request, index, x.index_select(0, tokens), largest)
            output.index_add_(0, tokens, rows * scales.index_select(0, slots))
    return output, largest


def _expert(request: MixtureRequest, index: int, rows: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    gate, up, down = request.weights(index)
    activation = ACTIVATIONS[request.activation]
    if up is None:
        first, second = (rows @ gate).chunk(2, dim=1)
        activated = activation(first) * second
    else:
        activated = activation(rows @ gate) * (rows @ up)
    if request.measurement_mode is not None:
        largest[index] = activated.detach().max().float()
    return activated @ down


def _plain(request: MixtureRequest) -> Measured:
    """The reference loop; the other form measures its activations separately."""
    weights = [request.weights(index) for index in range(len(request.down))]
    pairs = [gate.chunk(2, dim=1) if up is None else (gate, up) for gate, up, _ in weights]
    output = reference_mixture(
        request.hidden_states, request.routing, request.router_weights.to(request.hidden_states.dtype),
        [gate for gate, _ in pairs], [up for _, up in pairs], [down for _, _, down in weights],
        request.activation, request.first,
    )  # fmt: skip
    largest = _expert_by_expert(request)[1] if request.measurement_mode is not None else output.new_zeros(0)
    return output, largest
