"""g /= max(1, norm(all g)/max_norm); u = (m/c1)/(sqrt(v/c2) + eps) + wd*w; w -= lr*norm(w)/norm(u)*u."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.adamw import MOMENTS, check_lr_and_eps
from perftool.fused.bucket import Work
from perftool.fused.dispatch import register_native
from perftool.fused.flat import ROW, Layout
from perftool.fused.kernels import register_stages
from perftool.fused.norms import buffer_norm, divisor_for, norm, total_norm
from perftool.fused.optimizer import NATIVE_MODULE, FusedOptimizer
from perftool.fused.plan import Group

register_native("FusedLamb", NATIVE_MODULE, "FusedLamb")
register_stages("FusedLamb", "adamw")


class FusedLamb(FusedOptimizer):
    """LAMB (https://arxiv.org/abs/1904.00962) as Gaudi computes it.

    `weight_decay` defaults to the 0.01 of Gaudi's code; its documentation says 0.0. Weights of norm zero stay
    zero: the trust ratio has no guard for them. `adam_w_mode` and `fused` change nothing, decay is always
    decoupled. The clipping norm is that of the whole optimizer, its limit that of the constructor;
    gradients above it are divided in place. `step()` returns None.
    """

    op = "FusedLamb"
    kernel_name = "adamw"
    state_names = MOMENTS
    takes_divisor = False
    sparse_error = "Lamb does not support sparse gradients, consider SparseAdam instead."

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float | None = 1.0,
        use_lamb: bool = False,
        fused: bool = False,
        dtype: torch.dtype | None = None,
        *,
        flat: bool | None = None,
        backend: str | None = None,
    ) -> None:
        """`max_grad_norm=None`: no clipping; `use_lamb`: trust ratio without decay; `dtype`: of the norm."""
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        check_lr_and_eps(lr, eps)
        self.set_grad_none, self.dtype = set_grad_none, dtype
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
            "use_lamb": use_lamb,
        }
        super().__init__(params, defaults, flat=flat, backend=backend)

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        super().step(closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Forget the gradients or fill them with zeros, by default as `set_grad_none` says."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "set_grad_none": self.set_grad_none, "dtype": self.dtype}

    def _native_options(self) -> dict[str, Any]:
        return {**super()._native_options(), "set_grad_none": self.set_grad_none, "dtype": self.dtype}

    def _prepare(self, works: list[Work]) -> None:
        if self.defaults["max_grad_norm"] is not None:
            parts = [part for work in works for part in self._norm_parts(work)]
            self.grad_divisor = divisor_for(total_norm(parts), self.defaults["max_grad_norm"])

    def _norm_parts(self, work: Work) -> list[Tensor]:
        """Tensors whose common norm is that of the gradients."""
        if work.layout is not None:
            return [buffer_norm(work.grads[0], work.layout)]
        return [grad.to(self.dtype or grad.dtype) for grad in work.grads]

    def _update(self, group: Group, work: Work) -> None:
        for i, param in enumerate(work.params):
            update = self._direction(group, work, i, param)
            if group["weight_decay"] or group["use_lamb"]:
                _trusted_step(param, update, work.layout, float(group["lr"]))
            else:
                param.sub_(update, alpha=float(group["lr"]))

    def _direction(self, group: Group, work: Work, i: int, param: Tensor) -> Tensor:
        """u of the i-th parameter: the AdamW kernel adds to wd*w with a rate of -1 what it would subtract."""
        update = torch.mul(param, group["weight_decay"])
        beta1, beta2 = group["betas"]
        moments = [work.states[name][i] for name in MOMENTS]
        averaged = 1.0 if group["grad_averaging"] else 1 - beta1
        if averaged != 1.0:
            moments[0].mul_(averaged)
        correction = math.sqrt(1 - beta2 ** group["step"]) if group["bias_correction"] else 1.0
        self._kernel(work)(
            [update],
            [work.grads[i]],
            *([moment] for moment in moments),
            step=group["step"],
            lr=-1.0 / averaged,
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"] * correction,
            weight_decay=0.0,
            bias_correction=group["bias_correction"],
            grad_scale=self._divisor(work),
        )
        if averaged != 1.0:
            moments[0].div_(averaged)
        return update


def _trusted_step(param: Tensor, update: Tensor, layout: Layout | None, lr: float) -> None:
    """w -= lr * norm(w)/norm(u) * u for one tensor, or for each tensor in a flat buffer."""
    if layout is None:
        ratio = _trust_ratio(norm(param), norm(update)).to(param.dtype)
        param.addcmul_(update, ratio, value=-lr)
        return
    ratio = _trust_ratio(layout.norms(param), layout.norms(update)).to(param.dtype)
    param.view(-1, ROW).addcmul_(update.view(-1, ROW), layout.by_row(ratio), value=-lr)


def _trust_ratio(weight: Tensor, update: Tensor) -> Tensor:
    return torch.where(update > 0, weight / update, 1.0)
