"""The plain loop of every optimizer step: one parameter after another, one op after another.

All functions work in place on lists of equal length and run without autograd. `step` counts from 1. They are the oracle
of the tests, the baseline of the benchmarks, and the fallback without a fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


@torch.no_grad()
def sgd_(
    params: Tensors,
    grads: Tensors,
    buffers: Tensors = (),
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> None:
    """g += wd*w; b = momentum*b + (1-dampening)*g; w -= lr*b, or lr*(g + momentum*b) with Nesterov.

    `buffers` start at zero and may be empty without momentum, when w -= lr*g.
    """
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        grad = grad.add(param, alpha=weight_decay) if weight_decay else grad
        if momentum:
            buffers[i].mul_(momentum).add_(grad, alpha=1 - dampening)
            grad = grad.add(buffers[i], alpha=momentum) if nesterov else buffers[i]
        param.add_(grad, alpha=-lr)


@torch.no_grad()
def adagrad_(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    *,
    step: int,
    lr: float,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    eps: float = 1e-10,
) -> None:
    """g += wd*w; sum += g*g; w -= lr/(1 + (step-1)*lr_decay) * g/(sqrt(sum) + eps)."""
    rate = lr / (1 + (step - 1) * lr_decay)
    for param, grad, total in zip(params, grads, sums, strict=True):
        grad = grad.add(param, alpha=weight_decay) if weight_decay else grad
        total.addcmul_(grad, grad)
        param.addcdiv_(grad, total.sqrt().add_(eps), value=-rate)


@torch.no_grad()
def adamw_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    bias_correction: bool = True,
) -> None:
    """m, v = moving averages of g, g*g; w = w*(1 - lr*wd) - s*m/(sqrt(v) + eps).

    s is lr*sqrt(1-beta2^step)/(1-beta1^step), or lr without bias correction: eps is added to the plain root,
    as in the AdamW of Hugging Face, not to the corrected one, as in torch.optim.
    """
    correction = math.sqrt(1 - beta2**step) / (1 - beta1**step) if bias_correction else 1.0
    for param, grad, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        m.mul_(beta1).add_(grad, alpha=1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        param.mul_(1 - lr * weight_decay).addcdiv_(m, v.sqrt().add_(eps), value=-lr * correction)


@torch.no_grad()
def lamb_(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    *,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    bias_correction: bool = True,
    grad_averaging: bool = True,
    max_grad_norm: float | None = 1.0,
    use_lamb: bool = False,
) -> None:
    """g /= max(1, norm(all g)/max_norm); u = (m/c1)/(sqrt(v/c2) + eps) + wd*w; w -= lr*norm(w)/norm(u)*u.

    The trust ratio norm(w)/norm(u) is 1 where norm(u) is 0, and everywhere when wd is 0 without `use_lamb`.
    """
    clip = max(1.0, float(total_norm(grads)) / max_grad_norm) if max_grad_norm is not None else 1.0
    c1, c2 = (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
    beta3 = 1 - beta1 if grad_averaging else 1.0
    for param, grad, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        grad = grad / clip
        m.mul_(beta1).add_(grad, alpha=beta3)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = (m / c1) / ((v / c2).sqrt() + eps) + weight_decay * param
        if weight_decay or use_lamb:
            size = update.norm()
            update = update * torch.where(size > 0, param.norm() / size, torch.ones_like(size))
        param.sub_(update, alpha=lr)


@torch.no_grad()
def lars_scale_(
    params: Tensors,
    grads: Tensors,
    mask: Sequence[int],
    *,
    lr: float,
    weight_decay: float = 0.0,
    eeta: float = 1e-3,
    eps: float = 1e-8,
) -> None:
    """g = (g + wd*w) * lr * eeta*norm(w)/(norm(g) + wd*norm(w) + eps) where the mask is 1, g = lr*g where 0.

    The ratio is 1 where norm(w) or norm(g) is 0.
    """
    for param, grad, adapt in zip(params, grads, mask, strict=True):
        if not adapt:
            grad.mul_(lr)
            continue
        w, g = param.norm(), grad.norm()
        ratio = eeta * w / (g + weight_decay * w + eps)
        ratio = torch.where((w > 0) & (g > 0), ratio, torch.ones_like(ratio))
        grad.add_(param, alpha=weight_decay).mul_(ratio * lr)


@torch.no_grad()
def resource_apply_momentum_(
    params: Tensors, grads: Tensors, buffers: Tensors, *, momentum: float, first_step: bool
) -> None:
    """b = g in the first step, else momentum*b - g; w += b."""
    for param, grad, buffer in zip(params, grads, buffers, strict=True):
        if first_step:
            buffer.copy_(grad)
        else:
            buffer.mul_(momentum).sub_(grad)
        param.add_(buffer)


@torch.no_grad()
def ema_(averages: Tensors, values: Tensors, *, decay: float) -> None:
    """e = decay*e + (1-decay)*w for floating-point tensors; others are copied."""
    for average, value in zip(averages, values, strict=True):
        if average.is_floating_point():
            average.copy_(average * decay + (1 - decay) * value)
        else:
            average.copy_(value)


@torch.no_grad()
def total_norm(grads: Tensors) -> Tensor:
    """sqrt(sum of g*g over all tensors), 0-dim, accumulated in at least float32."""
    squares = [grad.to(torch.promote_types(grad.dtype, torch.float32)).pow(2).sum() for grad in grads]
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros(())


@torch.no_grad()
def clip_norm_(grads: Tensors, max_norm: float) -> Tensor:
    """g *= min(1, max_norm/(total + 1e-6)); returns the total norm before scaling, 0-dim."""
    total = total_norm(grads)
    coefficient = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for grad in grads:
        grad.mul_(coefficient.to(grad.dtype))
    return total
