"""`mixture_of_experts` with Gaudi's two signatures, on any device.

Each expert runs three plain matmuls over its tokens. The routing is sorted once, so the host waits for the device only
once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from perftool.fused.dispatch import choose, native_obstacle, register_everywhere

OP = "mixture_of_experts"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}

Measured = tuple[Tensor, Tensor]
Weights = Sequence[Tensor]


def _native_obstacle() -> str | None:
    """Return why Gaudi's op cannot run here, or None. Import `core`, which loads Gaudi's ops."""
    if (obstacle := native_obstacle("core", "__name__")) is not None:
        return obstacle
    return None if hasattr(torch.ops.hpu, OP) else f"torch.ops.hpu has no {OP}"


register_everywhere(OP, _native_obstacle)


def mixture_of_experts(*args: Any, **kwargs: Any) -> Tensor | Measured:
    """Return Σ over a token's experts of routerweight · (act(x·w1) ⊙ (x·w2))·w3, in the shape of hidden_states.

    hidden_states is [tokens, hidden], expert_routing_table (integers) and router_weights [tokens, k], each
    w1 and w2 [hidden, ffn], w12 [hidden, 2·ffn] (w1 in its left half), w3 [ffn, hidden]; all transposed with
    `permuted_weights`. `activation` is gelu (exact), relu or silu. Only experts from experts_min to
    experts_max, inclusive, contribute; the weight lists contain either these or all experts.

    Unless `measurement_mode` is None, the result is a pair: the output, and for each expert the largest input element
    of its last matmul (float32, not the absolute value; 0 for an expert without tokens). Raise RuntimeError for an
    unknown activation, and ValueError for shapes and dtypes that do not match.
    """
    bound = (_JOINED if _is_joined(args, kwargs) else _SEPARATE).bind(*args, **kwargs)
    if choose(OP, bound.arguments["hidden_states"].device.type) == "habana":
        native: Tensor | Measured = torch.ops.hpu.mixture_of_experts(*args, **kwargs)
        return native
    bound.apply_defaults()
    arguments = bound.arguments
    x, table, router_weights = (arguments[name] for name in _TOKENS)
    if arguments["activation"] not in ACTIVATIONS:
        raise RuntimeError(f'Activation "{arguments["activation"]}" not found among MoeActivationMode_t enum values.')
    _check_tokens(x, table, router_weights)
    experts = _experts(arguments, x)
    router_weights = router_weights.to(x.dtype)
    measured = arguments["measurement_mode"] is not None
    how = arguments["activation"], arguments["experts_min"], measured
    output, largest = _expert_by_expert(x, table, router_weights, experts, *how)
    return (output, largest) if measured else output


_TOKENS = ("hidden_states", "expert_routing_table", "router_weights")


def _signature(*weights: str) -> inspect.Signature:
    names = (*_TOKENS, *weights, "permuted_weights", "activation", "experts_min", "experts_max")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    last = inspect.Parameter("measurement_mode", kind, default=None)
    return inspect.Signature([*(inspect.Parameter(name, kind) for name in names), last])


_SEPARATE, _JOINED = _signature("w1", "w2", "w3"), _signature("w12", "w3")
# The signature that help() shows.
mixture_of_experts.__signature__ = _SEPARATE  # type: ignore[attr-defined]


def _is_joined(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the call passes w12 and w3, which are two lists of weights, instead of w1, w2 and w3."""
    if "w12" in kwargs or "w1" in kwargs or "w2" in kwargs:
        return "w12" in kwargs
    lists = sum(isinstance(argument, (list, tuple)) for argument in args)
    return lists + ("w3" in kwargs) == 2


def _experts(arguments: dict[str, Any], x: Tensor) -> list[Weights]:
    """Return the weights of each expert, each as [in, out]: gate, up and down, or gate and up joined in one tensor, and
    down."""
    first, last, permuted = arguments["experts_min"], arguments["experts_max"], arguments["permuted_weights"]
    if not 0 <= first <= last:
        raise ValueError(f"experts_min and experts_max must satisfy 0 <= min <= max, not {first} and {last}")
    lists = {
        name: _local(arguments[name], name, first, last) for name in ("w12", "w1", "w2", "w3") if name in arguments
    }
    hidden, ffn = x.size(1), lists["w3"][0].size(1 if permuted else 0)
    shapes = {"w12": (hidden, 2 * ffn), "w1": (hidden, ffn), "w2": (hidden, ffn), "w3": (ffn, hidden)}
    for name, weights in lists.items():
        expected = shapes[name][::-1] if permuted else shapes[name]
        for weight in weights:
            if weight.shape != expected:
                raise ValueError(f"every {name} must be {list(expected)}, not {list(weight.shape)}")
            if weight.dtype != x.dtype:
                raise ValueError(f"every {name} must have the dtype of hidden_states, {x.dtype}")
    return [[each.t() for each in expert] if permuted else expert for expert in zip(*lists.values(), strict=True)]


def _local(weights: Weights, name: str, first: int, last: int) -> Weights:
    """Return the weights of experts first..last; the list may contain these experts only, or all experts."""
    count = last - first + 1
    if len(weights) != count and len(weights) <= last:
        raise ValueError(f"{name} holds {len(weights)} experts, but experts {first} to {last} need {count} weights")
    return weights if len(weights) == count else weights[first : last + 1]


def _check_tokens(x: Tensor, table: Tensor, router_weights: Tensor) -> None:
    if x.dim() != 2:
        raise ValueError("hidden_states must be [tokens, hidden]")
    if x.dtype not in DTYPES:
        raise ValueError(f"hidden_states must be float32, float16 or bfloat16, not {x.dtype}")
    if table.dim() != 2 or table.size(0) != x.size(0):
        raise ValueError("expert_routing_table must be [tokens, experts per token]")
    if table.dtype.is_floating_point or table.dtype == torch.bool:
        raise ValueError("expert_routing_table must contain integers")
    if router_weights.shape != table.shape:
        raise ValueError("router_weights must have the shape of expert_routing_table")


def _expert_by_expert(
    x: Tensor,
    table: Tensor,
    router_weights: Tensor,
    experts: list[Weights],
    activation: str,
    first: int,
    measured: bool,
) -> Measured:
    """Return the output, and per expert the largest input element of its last matmul (0 unless `measured`)."""
    chosen, order = table.reshape(-1).sort(stable=True)
    counts = torch.bincount(chosen, minlength=first + len(experts)).tolist()
    scales, k = router_weights.reshape(-1, 1), table.size(1)
    output, largest = torch.zeros_like(x), x.new_zeros(len(experts), dtype=torch.float32)
    start = sum(counts[:first])
    for index, expert in enumerate(experts):
        slots, start = order[start : start + counts[first + index]], start + counts[first + index]
        if not len(slots):
            continue
        tokens = torch.div(slots, k, rounding_mode="floor")
        rows = _expert(x.index_select(0, tokens), expert, activation, largest[index] if measured else None)
        output.index_add_(0, tokens, rows * scales.index_select(0, slots))
    return output, largest


def _expert(rows: Tensor, expert: Weights, activation: str, largest: Tensor | None) -> Tensor:
    *gates, down = expert
    if len(gates) == 1:
        gate, up = (rows @ gates[0]).chunk(2, dim=1)
        activated = ACTIVATIONS[activation](gate) * up
    else:
        activated = ACTIVATIONS[activation](rows @ gates[0]) * (rows @ gates[1])
    if largest is not None:
        largest.copy_(activated.detach().max())
    return activated @ down
