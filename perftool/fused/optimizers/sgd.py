"""SGD: g += wd*w; b = momentum*b + (1-dampening)*g; w -= lr*b, or lr*(g + momentum*b) with Nesterov."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group, Kernel, refuse_negative


def fused_sgd_(params: list[Tensor], grads: list[Tensor], buffers: list[Tensor] | None = None, **options: Any) -> None:
    """Call PyTorch's kernel once. Momentum buffers start at zero, so the first step needs no special case."""
    torch._fused_sgd_(params, grads, buffers or [], is_first_step=False, maximize=False, **options)


@torch.no_grad()
def sgd_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    buffers: Sequence[Tensor] = (),
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> None:
    """Apply one step of SGD in place, one parameter after the other. `buffers` start at zero. Without momentum they may
    be empty, and w -= lr*g."""
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        grad = grad.add(param, alpha=weight_decay) if weight_decay else grad
        if momentum:
            buffers[i].mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffers[i], alpha=momentum) if nesterov else buffers[i]
        param.add_(grad, alpha=-lr)


_PROBE = {"lr": 0.5, "momentum": 0.5, "weight_decay": 0.5, "dampening": 0.0, "nesterov": True}
SGD = Kernel(fused_sgd_, sgd_, states=1, probe=_PROBE)


class FusedSGD(FusedOptimizer):
    """Stochastic gradient descent, with momentum as in torch.optim.SGD except in the first step.

    The momentum buffer starts at zero, so the first step uses (1-dampening)*g, where torch uses g. The order of the
    arguments follows Gaudi's code; its documentation puts `dampening` before `weight_decay`.
    """

    op = "FusedSGD"
    kernel = SGD
    counter = None
    sparse_error = "SGD does not support sparse gradients, please consider SparseSGD"

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        weight_decay: float = 0,
        dampening: float = 0,
        nesterov: bool = False,
    ) -> None:
        """Raise ValueError for negative rates, and for Nesterov without momentum or with dampening."""
        rates = {"learning rate": lr, "momentum value": momentum, "weight_decay value": weight_decay}
        refuse_negative({**rates, "dampening value": dampening})
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params, lr=lr, momentum=momentum, weight_decay=weight_decay, dampening=dampening, nesterov=nesterov
        )

    def _states(self, group: Group) -> dict[str, torch.dtype | None]:
        return {"momentum_buffer": None} if group["momentum"] else {}

    def _update(self, group: Group, batch: Batch) -> None:
        options = {name: group[name] for name in ("momentum", "weight_decay", "dampening", "nesterov")}
        self._run(batch, lr=float(group["lr"]), **options)
