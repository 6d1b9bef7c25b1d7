"""LAMB: g /= max(1, norm(all g)/max_norm); u = (m/c1)/(sqrt(v/c2) + eps) + wd*w; w -= lr*norm(w)/norm(u)*u."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.adamw import ADAMW, MOMENTS, check_lr_and_eps
from perftool.fused.optimizers.optimizer import Batch, FusedOptimizer, Group
from perftool.fused.optimizers.tensors import is_sharded, local_part, norms, total_norm

_ATTRIBUTES = ("set_grad_none", "dtype", "use_lamb", "adam_w_mode", "fused")
"""Constructor arguments that become attributes, under the names that Gaudi's class uses, and are pickled with the
state."""

_ZEROS = (
    "FusedLamb never trains a parameter that starts at zero, as on a Gaudi: the trust ratio is its norm."
    " Put biases and similar parameters into a group with weight_decay=0."
)


class FusedLamb(FusedOptimizer):
    """LAMB (https://arxiv.org/abs/1904.00962) as a Gaudi computes it.

    `weight_decay` defaults to 0.01 as in Gaudi's code; its documentation says 0.0. Weights whose norm is zero stay
    zero, because the trust ratio has no guard for them. The ratio is 1 where norm(u) is 0, and also without decay
    unless `use_lamb` is set. `adam_w_mode` and `fused` have no effect; decay is always decoupled. Clipping uses the
    norm over the whole optimizer and the constructor's limit, and divides gradients in place. `step()` returns None.
    """

    op = "FusedLamb"
    kernel = ADAMW
    state_names = MOMENTS
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
    ) -> None:
        """`max_grad_norm=None` disables clipping, `use_lamb` applies the trust ratio even without decay, and `dtype` is
        the dtype of the norm. Raises RuntimeError for `amsgrad`, and ValueError for a negative `lr` or `eps`."""
        if amsgrad:
            raise RuntimeError("FusedLamb does not support the AMSGrad variant.")
        check_lr_and_eps(lr, eps)
        self.set_grad_none, self.dtype, self.use_lamb = set_grad_none, dtype, use_lamb
        self.adam_w_mode, self.fused = int(adam_w_mode), fused
        super().__init__(
            params,
            lr=lr,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            grad_averaging=grad_averaging,
            max_grad_norm=max_grad_norm,
            use_lamb=use_lamb,
        )

    @property
    def device(self) -> torch.device:
        """The device of the first parameter."""
        first: Tensor = self.param_groups[0]["params"][0]
        return first.device

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        super().step(closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Set the gradients to None or fill them with zeros; by default, `set_grad_none` decides."""
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _ATTRIBUTES}}

    def _native_options(self) -> dict[str, Any]:
        return {**super()._native_options(), "set_grad_none": self.set_grad_none, "dtype": self.dtype}

    def _prepare(self, owners: list[Tensor]) -> None:
        limit = self.defaults["max_grad_norm"]
        if limit is None or not owners:
            return
        grads: list[Any] = [owner.grad for owner in owners]
        self._refuse_sparse(grads)
        total = total_norm(grads if self.dtype is None else [grad.to(self.dtype) for grad in grads])
        divisor = (total / limit).clamp(min=1.0)
        if divisor.is_cpu and divisor == 1.0:
            return  # reading the norm from a device would wait for the device
        for grad in grads:
            part = local_part(grad, grad)
            part.div_(divisor.to(part.device))

    def _update(self, group: Group, batch: Batch) -> None:
        for part in _parts(batch):
            updates = [param.detach() * group["weight_decay"] for param in part.params]
            self._add_directions(group, part, updates)
            factors = self._factors(group, part, updates)
            if isinstance(factors, list):
                for param, update, factor in zip(part.params, updates, factors, strict=True):
                    param.add_(update, alpha=factor)
                continue
            for param, update, each in zip(part.params, updates, factors.to(updates[0].dtype).unbind(), strict=True):
                param.addcmul_(update, each)

    def _add_directions(self, group: Group, part: Batch, updates: list[Tensor]) -> None:
        """Turn `updates` from wd*w into u: with a rate of -1, AdamW adds its step to wd*w."""
        beta1, beta2 = group["betas"]
        averaged, firsts = 1.0 if group["grad_averaging"] else 1 - beta1, part.states["exp_avg"]
        for moment in firsts if averaged != 1.0 else ():
            moment.mul_(averaged)
        correction = math.sqrt(1 - beta2 ** group["step"]) if group["bias_correction"] else 1.0
        options = {"step": group["step"], "beta1": beta1, "beta2": beta2, "bias_correction": group["bias_correction"]}
        rates = {"lr": -1.0 / averaged, "eps": group["eps"] * correction, "weight_decay": 0.0}
        self.kernel.form(self.op, part)(updates, part.grads, *part.states.values(), **rates, **options)
        for moment in firsts if averaged != 1.0 else ():
            moment.div_(averaged)

    def _factors(self, group: Group, part: Batch, updates: list[Tensor]) -> list[float] | Tensor:
        """Return the factor for each update: the negated rate times the trust ratio."""
        rate = -float(group["lr"])
        if not group["weight_decay"] and not group["use_lamb"]:
            return [rate] * len(updates)
        weights, sizes = norms(part.params, part.owners), norms(updates, part.owners)
        if group["step"] == 1 and not self._warned and not updates[0].is_meta:
            self._warned = any(p.numel() and norm == 0 for p, norm in zip(updates, weights.tolist(), strict=True))
            if self._warned:
                warnings.warn(_ZEROS, stacklevel=2)
        ratios = torch.where(sizes > 0, weights / sizes, 1.0)
        return [rate * ratio for ratio in ratios.tolist()] if ratios.is_cpu else ratios * rate


def _parts(batch: Batch) -> list[Batch]:
    """To keep temporaries small, split a batch on a CPU into individual parameters, unless any parameter is sharded."""
    if not batch.params[0].is_cpu or any(map(is_sharded, batch.owners)):
        return [batch]
    rows = zip(batch.params, batch.grads, batch.owners, *batch.states.values(), strict=True)
    return [
        Batch([param], [grad], {MOMENTS[0]: [first], MOMENTS[1]: [second]}, [owner], batch.ordinary)
        for param, grad, owner, first, second in rows
    ]
