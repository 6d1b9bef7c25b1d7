"""What the ops have in common that are a `torch.autograd.Function` on a Gaudi."""

from __future__ import annotations

from typing import Any

import torch

from perftool.fused.dispatch import ANY_DEVICE, Implementation, always, choose, native, register, register_native


class AppliedOp:
    """A class with the `apply` of a `torch.autograd.Function`, whose arguments are positional as there.

    It does not derive from Function, though it may run some: torch.compile replaces the `apply` of every subclass
    by its own, and could not take one that chooses among algorithms into a graph.
    """

    def __init_subclass__(cls) -> None:
        """TypeError for a subclass that overrides what would never be called."""
        for name in ("forward", "backward"):
            if name in cls.__dict__:
                raise TypeError(f"{cls.__name__}.{name} would never be called: here the op is its `apply` alone")


def register_applied(op: str, module: str) -> None:
    """Register an op that one expression of public functions computes well: it is the fast form and the plain one."""
    register_native(op, module, op)
    for name in ("fast", "reference"):
        register(Implementation(op, name, ANY_DEVICE, always))


def natively_applied(op: str, module: str, *arguments: Any) -> torch.Tensor | None:
    """The result of Gaudi's class where that is the choice for the first argument, a tensor; else None."""
    if choose(op, arguments[0].device.type).name != "habana":
        return None
    result: torch.Tensor = native(module, op).apply(*arguments)
    return result
