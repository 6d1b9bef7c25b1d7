"""Simulates a function as one kernel on the device, and its backward pass as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from perftool.sim.ops.op_work import tensors
from perftool.sim.session.fused_region import fused_op, shapes
from perftool.sim.session.simulation import Simulation

_NUMBERS = (bool, int, float, str, type(None))


def one_op(simulation: Simulation, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``plain`` as a kernel called ``name``; its backward pass recomputes it in a kernel called ``name_bwd``."""

    class OneOp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, spec: Any, *flat: Any) -> Any:
            ctx.spec, ctx.flat = spec, [None if isinstance(each, torch.Tensor) else each for each in flat]
            ctx.save_for_backward(*(each if isinstance(each, torch.Tensor) else None for each in flat))
            with fused_op(simulation, name, _key(flat)):
                args, kwargs = tree_unflatten(list(flat), spec)
                result = plain(*args, **kwargs)
            for each in tensors(result):
                simulation.placement.put(each)
            return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = [each if each is None else each.detach() for each in ctx.saved_tensors]
            wanted = [
                each
                for each, needed in zip(saved, ctx.needs_input_grad[1:], strict=True)
                if each is not None and needed
            ]
            flat = [each if each is not None else other for each, other in zip(saved, ctx.flat, strict=True)]
            with fused_op(simulation, f"{name}_bwd", _key(flat)), torch.enable_grad():
                for each in wanted:
                    each.requires_grad_()
                args, kwargs = tree_unflatten(flat, ctx.spec)
                result = tensors(plain(*args, **kwargs))
                found = iter(torch.autograd.grad(result, wanted, grads, allow_unused=True))
            gradients = [next(found) if needed else None for needed in ctx.needs_input_grad[1:]]
            for each in tensors(gradients):
                simulation.placement.put(each)
            return (None, *gradients)

    def call(*args: Any, **kwargs: Any) -> Any:
        flat, spec = tree_flatten((args, kwargs))
        return OneOp.apply(spec, *flat)  # type: ignore[no-untyped-call]

    return call


def _key(flat: Any) -> tuple[Any, ...]:
    return shapes(tensors(flat)), tuple(each for each in flat if isinstance(each, _NUMBERS))
