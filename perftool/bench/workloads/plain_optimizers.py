"""LAMB and LARS as handwritten torch.optim.Optimizers with a loop over tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from perftool.fused.reference import lamb_, lars_scale_, resource_apply_momentum_

_MOMENTUM = 0.9


class Lamb(torch.optim.Optimizer):
    """LAMB with the defaults of FusedLamb; no closures."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3, max_grad_norm: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "step": 0, "max_grad_norm": max_grad_norm})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters, one after the other."""
        for group in self.param_groups:
            params = group["params"]
            group["step"] += 1
            lamb_(
                params,
                [param.grad for param in params],
                *_states(self, params, "exp_avg", "exp_avg_sq"),
                step=group["step"],
                lr=group["lr"],
                beta1=0.9,
                beta2=0.999,
                eps=1e-6,
                weight_decay=0.01,
                max_grad_norm=group["max_grad_norm"],
            )


class Lars(torch.optim.Optimizer):
    """LARS with momentum; tensors of one dimension are not adapted. Gradients are overwritten; no closures."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, eeta: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "eeta": eeta, "weight_decay": weight_decay, "first": True})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters, one after the other."""
        for group in self.param_groups:
            params = group["params"]
            grads = [param.grad for param in params]
            mask = [int(param.dim() > 1) for param in params]
            lars_scale_(params, grads, mask, lr=group["lr"], weight_decay=group["weight_decay"], eeta=group["eeta"])
            (buffers,) = _states(self, params, "momentum_buffer")
            resource_apply_momentum_(params, grads, buffers, momentum=_MOMENTUM, first_step=group["first"])
            group["first"] = False


def _states(optimizer: torch.optim.Optimizer, params: Iterable[nn.Parameter], *names: str) -> list[list[torch.Tensor]]:
    """A list of tensors for each name, zeros when first asked for."""
    states: list[dict[str, Any]] = [optimizer.state[param] for param in params]
    for param, state in zip(params, states, strict=True):
        for name in names:
            state.setdefault(name, None)
            if state[name] is None:
                state[name] = torch.zeros_like(param)
    return [[state[name] for state in states] for name in names]
