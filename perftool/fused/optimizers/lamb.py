"""g /= max(1, norm(all g)/max_norm); u = (m/c1)/(sqrt(v/c2) + eps) + wd*w; w -= lr*norm(w)/norm(u)*u."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import register_native
from perftool.fused.optimizers import native
from perftool.fused.optimizers.adamw import MOMENTS, check_lr_and_eps
from perftool.fused.optimizers.batches import Batch, Group
from perftool.fused.optimizers.kernels import best_kernel, has_fast_kernel, register_stages
from perftool.fused.optimizers.norms import Rows, divisor_for, norm_of_alike, norm_on_cpu, norms, total_norm
from perftool.fused.optimizers.optimizer import NATIVE_MODULE, FusedOptimizer

register_native("FusedLamb", NATIVE_MODULE, "FusedLamb")
register_stages("FusedLamb", "adamw")

_ATTRIBUTES = ("set_grad_none", "dtype", "use_lamb", "adam_w_mode", "fused")
"""What the constructor keeps beside the groups, under the names that Gaudi's class has for it."""

_ZEROS = (
    "FusedLamb never trains a parameter that starts at zero, as on a Gaudi: the trust ratio is its norm."
    " Put biases and the like into a group with weight_decay=0."
)


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
    _warned = False

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
        backend: str | None = None,
    ) -> None:
        """`max_grad_norm=None`: no clipping; `use_lamb`: trust ratio without decay; `dtype`: of the norm."""
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        check_lr_and_eps(lr, eps)
        self.set_grad_none, self.dtype, self.use_lamb = set_grad_none, dtype, use_lamb
        self.adam_w_mode, self.fused = int(adam_w_mode), fused
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
        super().__init__(params, defaults, backend=backend)

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        first: Tensor = self.param_groups[0]["params"][0]
        return first.device

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        super().step(closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Forget the gradients or fill them with zeros, by default as `set_grad_none` says."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _ATTRIBUTES}}

    def _native_options(self) -> dict[str, Any]:
        return {**super()._native_options(), "set_grad_none": self.set_grad_none, "dtype": self.dtype}

    def _prepare(self, batches: list[Batch]) -> None:
        if self.defaults["max_grad_norm"] is not None:
            self._divisor = divisor_for(self._norm(batches), self.defaults["max_grad_norm"])

    def _norm(self, batches: list[Batch]) -> Tensor:
        grads = [grad for each in batches for grad in each.grads]
        if self.dtype is not None:
            grads = [grad.to(self.dtype) for grad in grads]
        if all(map(self._is_native, batches)) and (total := native.norm(grads)) is not None:
            return total
        if len(batches) == 1 and batches[0].fits and not batches[0].spread:
            return norm_of_alike(grads)
        return total_norm(grads, [owner for each in batches for owner in each.owners])

    def _update(self, group: Group, batch: Batch) -> None:
        if self._is_native(batch) and self._update_natively(group, batch):
            return
        for part in (part for alike in batch.by_size() for part in alike.parts()):
            if self._can_lay_out(part):
                self._update_laid_out(group, part)
            else:
                self._update_listed(group, part)

    def _update_natively(self, group: Group, batch: Batch) -> bool:
        step, (beta1, beta2) = group["step"], group["betas"]
        corrections = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
        weight_of_gradient = 1 - beta1 if group["grad_averaging"] else 1.0
        options = group["eps"], group["weight_decay"], _adapts(group), native.factor(self._divisor_on(batch))
        moments = batch.states["exp_avg"], batch.states["exp_avg_sq"]
        rates = float(group["lr"]), beta1, beta2, weight_of_gradient, *corrections
        zeros = native.lamb(batch.params, batch.grads, *moments, *rates, *options)
        if zeros and _adapts(group) and step == 1 and not self._warned:
            self._say_zeros_stay()
        return zeros is not None

    def _can_lay_out(self, part: Batch) -> bool:
        # The laid-out update is one long vector, which the plain loops do not take for a tensor of another shape.
        return part.can_be_laid_out and all(
            has_fast_kernel(self.op, name, part.params[0], self.backend) for name in ("adamw", "sgd")
        )

    def _update_laid_out(self, group: Group, part: Batch) -> None:
        """Many small tensors: the update of all of them is one piece of memory, kept for the next step."""
        rows = Rows(part.params, part.sizes)
        room = rows.room(part.kept)
        update, pieces = torch.mul(rows.values, group["weight_decay"], out=room.values), room.pieces
        self._add_directions(group, part, pieces)
        if _adapts(group):
            weights = rows.norms()
            self._warn_of_zeros(group, part.params, weights)
            update.mul_(rows.by_row(_trust_ratio(weights, rows.norms(update)).to(update.dtype)))
        options = {"momentum": 0.0, "weight_decay": 0.0, "dampening": 0.0, "nesterov": False}
        best_kernel("sgd", "fast", part.params[0])(part.params, pieces, [], lr=float(group["lr"]), **options)

    def _update_listed(self, group: Group, part: Batch) -> None:
        updates = _multiplied(part, group["weight_decay"])
        self._add_directions(group, part, updates)
        lr = float(group["lr"])
        if not _adapts(group):
            for param, update in zip(part.params, updates, strict=True):
                param.sub_(update, alpha=lr)
            return
        if part.device_type == "cpu" and part.ordinary and not part.spread:
            weights = list(map(norm_on_cpu, part.params))
            for param, update, weight in zip(part.params, updates, weights, strict=True):
                size = norm_on_cpu(update)
                param.sub_(update, alpha=lr * (weight / size if size > 0 else 1.0))
            self._warn_of_zeros(group, part.params, weights)
            return
        found = norms(part.params, part.owners)
        ratios = _trust_ratio(found, norms(updates, part.owners)).to(updates[0].dtype)
        for param, update, ratio in zip(part.params, updates, ratios.unbind(), strict=True):
            param.addcmul_(update, ratio, value=-lr)
        self._warn_of_zeros(group, part.params, found)

    def _warn_of_zeros(self, group: Group, params: list[Tensor], weights: Tensor | list[float]) -> None:
        """Say once, in the first step, that parameters of zeros are not trained: a surprise, and Gaudi's own."""
        if group["step"] != 1 or self._warned or params[0].is_meta:
            return
        found = weights if isinstance(weights, list) else [float(each) for each in weights.unbind()]
        if any(param.numel() and weight == 0 for param, weight in zip(params, found, strict=True)):
            self._say_zeros_stay()

    def _say_zeros_stay(self) -> None:
        self._warned = True
        warnings.warn(_ZEROS, stacklevel=2)

    def _add_directions(self, group: Group, part: Batch, updates: list[Tensor]) -> None:
        """Make u of wd*w: with a rate of -1 the AdamW kernel adds to it what it would subtract from w."""
        beta1, beta2 = group["betas"]
        exp_avgs, exp_avg_sqs = part.states["exp_avg"], part.states["exp_avg_sq"]
        averaged = 1.0 if group["grad_averaging"] else 1 - beta1
        if averaged != 1.0:
            for exp_avg in exp_avgs:
                exp_avg.mul_(averaged)
        correction = math.sqrt(1 - beta2 ** group["step"]) if group["bias_correction"] else 1.0
        self._kernel(part)(
            updates,
            part.grads,
            exp_avgs,
            exp_avg_sqs,
            step=group["step"],
            lr=-1.0 / averaged,
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"] * correction,
            weight_decay=0.0,
            bias_correction=group["bias_correction"],
            grad_scale=self._divisor_on(part),
        )
        if averaged != 1.0:
            for exp_avg in exp_avgs:
                exp_avg.div_(averaged)


def _adapts(group: Group) -> bool:
    return bool(group["weight_decay"] or group["use_lamb"])


def _multiplied(part: Batch, factor: float) -> list[Tensor]:
    if part.ordinary:
        return list(torch._foreach_mul(part.params, factor))
    return [torch.mul(param, factor) for param in part.params]


def _trust_ratio(weight: Tensor, update: Tensor) -> Tensor:
    return torch.where(update > 0, weight / update, 1.0)
