"""LAMB, LARS and a mixture of experts, written from their definitions, one tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


def lamb_step(
    weights: Sequence[Tensor],
    grads: Sequence[Tensor],
    moments: Sequence[tuple[Tensor, Tensor]],
    step: int,
    *,
    lr: float = 1e-2,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    bias_correction: bool = True,
    grad_averaging: bool = True,
    max_grad_norm: float | None = 1.0,
    use_lamb: bool = False,
) -> None:
    """Take a LAMB step in place, on tensors in double precision."""
    beta1, beta2 = betas
    total = math.sqrt(sum(float((g * g).sum()) for g in grads))
    clip = 1.0 if max_grad_norm is None else max(1.0, total / max_grad_norm)
    c1, c2 = (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
    beta3 = 1 - beta1 if grad_averaging else 1.0
    for w, g, (m, v) in zip(weights, grads, moments, strict=True):
        m.copy_(beta1 * m + beta3 * g / clip)
        v.copy_(beta2 * v + (1 - beta2) * (g / clip) ** 2)
        u = (m / c1) / ((v / c2).sqrt() + eps) + weight_decay * w
        ratio = 1.0
        if (weight_decay or use_lamb) and u.norm() > 0:
            ratio = float(w.norm() / u.norm())
        w.copy_(w - lr * ratio * u)


def lars_gradient(
    weight: Tensor, grad: Tensor, adapt: int, *, lr: float, decay: float, eeta: float, eps: float = 1e-8
) -> Tensor:
    """Return the gradient as LARS scales it."""
    if not adapt:
        return grad * lr
    w, g = weight.norm(), grad.norm()
    ratio = eeta * w / (g + decay * w + eps) if w > 0 and g > 0 else 1.0
    return (grad + decay * weight) * lr * ratio


def momentum_step(weight: Tensor, buffer: Tensor, grad: Tensor, momentum: float, first: bool) -> None:
    """Take a step of FusedResourceApplyMomentum in place."""
    buffer.copy_(grad if first else momentum * buffer - grad)
    weight += buffer


def mixture(
    x: Tensor,
    table: Tensor,
    weights: Tensor,
    w1: Sequence[Tensor],
    w2: Sequence[Tensor],
    w3: Sequence[Tensor],
    activation: str,
) -> Tensor:
    """Return the sum of the experts' results for each token, computed expert by expert as in Mixtral. Weights are [in,
    out].
    """
    output = torch.zeros_like(x)
    for index in range(len(w3)):
        tokens, slots = torch.where(table == index)
        rows = x[tokens]
        y = ACTIVATIONS[activation](rows @ w1[index]) * (rows @ w2[index]) @ w3[index]
        output.index_add_(0, tokens, y * weights[tokens, slots].unsqueeze(1))
    return output
