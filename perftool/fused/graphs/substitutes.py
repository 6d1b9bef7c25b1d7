"""Plain forms of PyTorch's fused optimizer kernels that its compiler cannot trace.

`_fused_sgd_` and `_fused_adagrad_` have no shape function, and `_fused_adamw_` cannot be made free of side
effects, so a program with them would not compile. Written out they are pointwise, and the compiler fuses them
again, together with what surrounds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensors = list[torch.Tensor]


def substitute(op: Callable[..., Any]) -> Callable[..., Any]:
    """The plain form of an operator that needs one, else the operator itself."""
    return _SUBSTITUTES.get(op, op)


def _adjusted(
    param: torch.Tensor,
    grad: torch.Tensor,
    weight_decay: float,
    maximize: bool,
    grad_scale: torch.Tensor | None,
    found_inf: torch.Tensor | None,
) -> torch.Tensor:
    """The gradient an optimizer works with. The kernels divide the stored gradient in place by its scale."""
    if found_inf is not None:
        raise RuntimeError("found_inf skips a step by value, which a captured program cannot do")
    if grad_scale is not None:
        grad.div_(grad_scale)
    signed = -grad if maximize else grad
    return signed + weight_decay * param if weight_decay != 0.0 else signed


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """`torch._fused_sgd_`: the first step fills the buffers with the gradient, undamped."""
    for index, param in enumerate(params):
        change = _adjusted(param, grads[index], weight_decay, maximize, grad_scale, found_inf)
        if momentum != 0.0:
            buffer = momentum_buffers[index]
            if is_first_step:
                buffer.copy_(change)
            else:
                buffer.mul_(momentum).add_(change, alpha=1.0 - dampening)
            change = change + momentum * buffer if nesterov else buffer
        param.sub_(lr * change)


def adagrad(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    steps: Tensors,
    *,
    lr: float,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """`torch._fused_adagrad_`: steps are counted by the caller, before."""
    for index, param in enumerate(params):
        grad = _adjusted(param, grads[index], weight_decay, maximize, grad_scale, found_inf)
        sums[index].addcmul_(grad, grad)
        rate = lr / (1.0 + (steps[index] - 1.0) * lr_decay)
        param.sub_(rate * grad / (sums[index].sqrt() + eps))


def adamw(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    steps: Tensors,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """`torch._fused_adamw_`: steps are counted by the caller, before."""
    for index, param in enumerate(params):
        grad = _adjusted(param, grads[index], 0.0, maximize, grad_scale, found_inf)
        first, second = exp_avgs[index], exp_avg_sqs[index]
        first.mul_(beta1).add_(grad, alpha=1.0 - beta1)
        second.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
        if amsgrad:
            second = torch.maximum(max_exp_avg_sqs[index], second)
            max_exp_avg_sqs[index].copy_(second)
        root = (1.0 - beta2 ** steps[index]).sqrt()
        update = first / (second.sqrt() / root + eps)
        param.mul_(1.0 - lr * weight_decay).sub_(lr / (1.0 - beta1 ** steps[index]) * update)


_SUBSTITUTES: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten._fused_sgd_.default: sgd,
    torch.ops.aten._fused_sgd_.tensor_lr: sgd,
    torch.ops.aten._fused_adamw_.default: adamw,
    torch.ops.aten._fused_adamw_.tensor_lr: adamw,
    torch.ops.aten._fused_adagrad_.default: adagrad,
    torch.ops.aten._fused_adagrad_.tensor_lr: adagrad,
}
