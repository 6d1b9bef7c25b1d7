"""`mixture_of_experts` with Gaudi's two sets of arguments, on any device.

The fast form sorts the token-expert pairs by expert, so that each expert multiplies one contiguous block,
and puts the results back with one indexed addition. It waits for the device once, to learn the block sizes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch

from perftool.fused.dispatch import Implementation, always, choose, register
from perftool.fused.moe.request import MixtureRequest, mixture_request
from perftool.fused.reference.moe import ACTIVATIONS
from perftool.fused.reference.moe import mixture_of_experts as reference_mixture

OP = "mixture_of_experts"
# Up to here all experts' activations fit the cache together, and one call for all of them saves overhead.
SMALL_ACTIVATIONS = 2**18

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
) -> torch.Tensor: ...


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
) -> torch.Tensor: ...


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
    measurement_mode: bool,
) -> Measured: ...


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
    measurement_mode: bool,
) -> Measured: ...


def mixture_of_experts(*args: Any, **kwargs: Any) -> torch.Tensor | Measured:
    """Σ over a token's experts of routerweight · (act(x·w1) ⊙ (x·w2))·w3, in the shape of hidden_states.

    hidden_states is [tokens, hidden], expert_routing_table (integers) and router_weights [tokens, k], each
    w1 and w2 [hidden, ffn], w12 [hidden, 2·ffn] (w1 left), w3 [ffn, hidden]; all transposed with
    `permuted_weights`. `activation` is gelu (exact), relu or silu. Only experts from experts_min to
    experts_max, inclusive, contribute; the weight lists hold these, or all experts.

    With a value for `measurement_mode` the result is a pair: the output, and per expert the largest element
    of what enters its last product (float32, plain maximum; 0 for an expert without tokens).
    RuntimeError for an unknown activation, ValueError for shapes and dtypes that do not fit.
    """
    form = _joined if _is_joined(args, kwargs) else _separate
    call = inspect.signature(form).bind(*args, **kwargs)
    choice = choose(OP, call.arguments["hidden_states"].device.type)
    if choice.name == "habana":
        native: torch.Tensor | Measured = torch.ops.hpu.mixture_of_experts(*args, **kwargs)
        return native
    request = form(*args, **kwargs)
    output, largest = _plain(request) if choice.name == "reference" else _sorted(request)
    return output if request.measurement_mode is None else (output, largest)


def _is_joined(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True for the w12, w3 form: it has two lists of weights where the other one has three."""
    if "w12" in kwargs or "w1" in kwargs or "w2" in kwargs:
        return "w12" in kwargs
    lists = sum(isinstance(argument, (list, tuple)) for argument in args)
    return lists + ("w3" in kwargs) == 2


def _separate(
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
) -> MixtureRequest:
    return mixture_request(
        hidden_states, expert_routing_table, router_weights, w1, w2, w3,
        permuted_weights, activation, experts_min, experts_max, measurement_mode,
    )  # fmt: skip


def _joined(
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
) -> MixtureRequest:
    return mixture_request(
        hidden_states, expert_routing_table, router_weights, w12, None, w3,
        permuted_weights, activation, experts_min, experts_max, measurement_mode,
    )  # fmt: skip


# What help() and editors show; the overloads tell type checkers about both forms.
mixture_of_experts.__signature__ = inspect.signature(_separate).replace(  # type: ignore[attr-defined]
    return_annotation="torch.Tensor | tuple[torch.Tensor, torch.Tensor]"
)


def _sorted(request: MixtureRequest) -> Measured:
    """The fast form: one contiguous block of rows per expert."""
    k = request.routing.size(1)
    experts, order = request.routing.reshape(-1).sort(stable=True)
    counts = torch.bincount(experts, minlength=request.last + 1).tolist()
    before, mine = sum(counts[: request.first]), counts[request.first : request.last + 1]
    order = order[before : before + sum(mine)]
    rows = torch.div(order, k, rounding_mode="floor")
    x = request.hidden_states.index_select(0, rows)
    scale = request.router_weights.reshape(-1, 1).index_select(0, order).to(x.dtype)
    hit = [index for index, count in enumerate(mine) if count]
    blocks = Blocks(
        [mine[index] for index in hit],
        request.oriented(request.gate, hit),
        request.oriented(request.up, hit) if request.up is not None else None,
        request.oriented(request.down, hit),
    )
    if _can_write_in_place(request, x):
        y, largest = _small_inference(request.activation, x, blocks), x.new_zeros(0)
    else:
        y, found = _expert_by_expert(request.activation, x, blocks, request.measurement_mode is not None)
        largest = x.new_zeros(len(mine), dtype=torch.float32)
        if found:
            largest[hit] = torch.stack(found)
    return torch.zeros_like(request.hidden_states).index_add_(0, rows, y * scale), largest


@dataclass(frozen=True)
class Blocks:
    """The experts that have rows: how many each, in order, and their weights as [in, out]."""

    counts: list[int]
    gate: list[torch.Tensor]
    up: list[torch.Tensor] | None
    down: list[torch.Tensor]


def _can_write_in_place(request: MixtureRequest, x: torch.Tensor) -> bool:
    if request.measurement_mode is not None or x.size(0) * request.ffn > SMALL_ACTIVATIONS:
        return False
    if not torch.is_grad_enabled():
        return True
    inputs = (x, *request.gate, *(request.up or ()), *request.down)
    return not any(tensor.requires_grad for tensor in inputs)


def _small_inference(activation: str, x: torch.Tensor, blocks: Blocks) -> torch.Tensor:
    """Products written side by side into one buffer, one activation for all experts."""
    gate = _products(x, blocks.gate, blocks.counts)
    if blocks.up is None:
        gate, up = gate.chunk(2, dim=1)
    else:
        up = _products(x, blocks.up, blocks.counts)
    return _products(ACTIVATIONS[activation](gate).mul_(up), blocks.down, blocks.counts)


def _products(x: torch.Tensor, weights: list[torch.Tensor], counts: list[int]) -> torch.Tensor:
    out = x.new_empty(x.size(0), weights[0].size(1) if weights else x.size(1))
    blocks, targets = torch.split(x, counts), torch.split(out, counts)
    for block, weight, target in zip(blocks, weights, targets, strict=True):
        torch.mm(block, weight, out=target)
    return out


def _expert_by_expert(
    activation: str, x: torch.Tensor, blocks: Blocks, measure: bool
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Differentiable, and one expert's activations at a time; with `measure` also the largest of each."""
    outputs: list[torch.Tensor] = [x[:0]]
    largest: list[torch.Tensor] = []
    for index, block in enumerate(torch.split(x, blocks.counts) if blocks.counts else ()):
        # The results of two products of half the width fit the cache better than those of one.
        weights = blocks.gate[index].chunk(2, dim=1) if blocks.up is None else (blocks.gate[index], blocks.up[index])
        gate, up = (block @ weight for weight in weights)
        activated = ACTIVATIONS[activation](gate) * up
        if measure:
            largest.append(activated.detach().max().float())
        outputs.append(activated @ blocks.down[index])
    return torch.cat(outputs), largest


def _plain(request: MixtureRequest) -> Measured:
    """The reference loop; its activations are measured apart, by the other form's own arithmetic."""
    everyone = range(len(request.down))
    gate, down = request.oriented(request.gate, everyone), request.oriented(request.down, everyone)
    if request.up is not None:
        up = request.oriented(request.up, everyone)
    else:
        halves = [weight.chunk(2, dim=1) for weight in gate]
        gate, up = [half[0] for half in halves], [half[1] for half in halves]
    output = reference_mixture(
        request.hidden_states, request.routing, request.router_weights.to(request.hidden_states.dtype),
        gate, up, down, request.activation, request.first,
    )  # fmt: skip
    largest = _sorted(request)[1] if request.measurement_mode is not None else output.new_zeros(0)
    return output, largest
