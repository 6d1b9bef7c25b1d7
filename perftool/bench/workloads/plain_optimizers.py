"""LAMB and LARS as handwritten torch.optim.Optimizers with a loop over tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

_MOMENTUM, _EPS, _DECAY = 0.9, 1e-6, 0.01
_BETA1, _BETA2 = 0.9, 0.999


class Lamb(torch.optim.Optimizer):
    """LAMB with the defaults of FusedLamb; closures are not supported."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1e-3, max_grad_norm: float = 1.0) -> None:
        super().__init__(params, {"lr": lr, "step": 0, "max_grad_norm": max_grad_norm})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters, one after the other."""
        for group in self.param_groups:
            params = group["params"]
            group["step"] += 1
            total = torch.stack([param.grad.pow(2).sum() for param in params]).sum().sqrt()
            clip = max(1.0, float(total) / group["max_grad_norm"])
            c1, c2 = 1 - _BETA1 ** group["step"], 1 - _BETA2 ** group["step"]
            moments = _states(self, params, "exp_avg", "exp_avg_sq")
            for param, m, v in zip(params, *moments, strict=True):
                grad = param.grad / clip
                m.mul_(_BETA1).add_(grad, alpha=1 - _BETA1)
                v.mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)
                update = (m / c1) / ((v / c2).sqrt() + _EPS) + _DECAY * param
                size = update.norm()
                update = update * torch.where(size > 0, param.norm() / size, torch.ones_like(size))
                param.sub_(update, alpha=group["lr"])


class Lars(torch.optim.Optimizer):
    """LARS with momentum; 1-dim tensors are not adapted. Gradients are overwritten, and closures are not supported."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, eeta: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "eeta": eeta, "weight_decay": weight_decay, "first": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters, one after the other."""
        for group in self.param_groups:
            params = group["params"]
            (buffers,) = _states(self, params, "momentum_buffer")
            for param, buffer in zip(params, buffers, strict=True):
                _adapt(param, param.grad, **{name: group[name] for name in ("lr", "eeta", "weight_decay")})
                if group["first"]:
                    buffer.copy_(param.grad)
                else:
                    buffer.mul_(_MOMENTUM).sub_(param.grad)
                param.add_(buffer)
            group["first"] = False


def _adapt(param: torch.Tensor, grad: torch.Tensor, lr: float, eeta: float, weight_decay: float) -> None:
    """Scale a gradient in place as LARS does; the ratio is 1 if a norm is 0."""
    if param.dim() <= 1:
        grad.mul_(lr)
        return
    w, g = param.norm(), grad.norm()
    ratio = eeta * w / (g + weight_decay * w + 1e-8)
    ratio = torch.where((w > 0) & (g > 0), ratio, torch.ones_like(ratio))
    grad.add_(param, alpha=weight_decay).mul_(ratio * lr)


def _states(optimizer: torch.optim.Optimizer, params: Iterable[nn.Parameter], *names: str) -> list[list[torch.Tensor]]:
    """Return the optimizer state of ``params`` by name; it starts as zeros."""
    states: list[dict[str, Any]] = [optimizer.state[param] for param in params]
    for param, state in zip(params, states, strict=True):
        for name in names:
            state.setdefault(name, None)
            if state[name] is None:
                state[name] = torch.zeros_like(param)
    return [[state[name] for state in states] for name in names]
