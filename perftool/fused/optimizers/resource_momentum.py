"""b = g in the first step, else momentum*b - g; w += b. Without momentum w += g in every step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group, refuse_negative, register_optimizer
from perftool.fused.optimizers.sgd import SGD

register_optimizer("FusedResourceApplyMomentum", SGD)

_ADDING = (
    "FusedResourceApplyMomentum without momentum adds the gradients in every step, as on a Gaudi: the loss grows."
    " Give it a momentum."
)


@torch.no_grad()
def resource_apply_momentum_(
    params: Sequence[Tensor], grads: Sequence[Tensor], buffers: Sequence[Tensor], *, momentum: float, first_step: bool
) -> None:
    """The plain loop."""
    for param, grad, buffer in zip(params, grads, buffers, strict=True):
        if first_step:
            buffer.copy_(grad)
        else:
            buffer.mul_(momentum).sub_(grad)
        param.add_(buffer)


class FusedResourceApplyMomentum(FusedOptimizer):
    """Momentum that adds gradients unscaled: the optimizer for FusedLars, which scales them by lr. `lr`, `weight_decay`
    and `nesterov` are kept in the groups but not used. As on Gaudi, the first step of a group adds the gradient and all
    later ones subtract it; without momentum every step is a first one, and a warning says so once.
    """

    op = "FusedResourceApplyMomentum"
    kernel = SGD
    sparse_error = "ResourceApplyMomentum does not support sparse gradients"
    _warned = False

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        backend: str | None = None,
    ) -> None:
        """ValueError for a negative rate, and for Nesterov without momentum."""
        refuse_negative({"learning rate": lr, "momentum value": momentum, "weight_decay value": weight_decay})
        if nesterov and momentum == 0:
            raise ValueError("Nesterov momentum requires a momentum")
        super().__init__(params, backend, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)

    def _update(self, group: Group, batch: Batch) -> None:
        momentum = group["momentum"]
        if not momentum and not self._warned:
            self._warned = True
            warnings.warn(_ADDING, stacklevel=2)
        # b = momentum*b + (1 - dampening)*g; w -= lr*b: a dampening of 2 subtracts g, a rate of -1 adds b.
        dampening = 2.0 if momentum and group["step"] > 1 else 0.0
        self._run(batch, lr=-1.0, momentum=momentum, weight_decay=0.0, dampening=dampening, nesterov=False)

    def _states(self, group: Group) -> dict[str, torch.dtype | None]:
        return {"momentum_buffer": None} if group["momentum"] else {}

    def _continue_from(self, group: Group, count: int) -> None:
        # A state of Gaudi's class has no count: a momentum shows that the first step is done.
        begun = any(self.state[param].get("momentum_buffer") is not None for param in group["params"])
        super()._continue_from(group, max(count, int(begun)))
