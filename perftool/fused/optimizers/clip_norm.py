"""total = sqrt(sum of g*g); g *= min(1, max_norm/(total + 1e-6))."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import (
    ANY_DEVICE,
    NATIVE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.optimizers import native as kernels
from perftool.fused.optimizers.memory import is_ordinary
from perftool.fused.optimizers.norms import total_norm
from perftool.fused.optimizers.optimizer import FusedOptimizer
from perftool.fused.optimizers.pending import PendingClip
from perftool.fused.optimizers.shards import is_spread, local_part
from perftool.fused.reference import clip_norm_

NATIVE_MODULE = "hpex.normalization"

register_native("FusedClipNorm", NATIVE_MODULE, "FusedClipNorm")
kernels.register_native_kernels("FusedClipNorm")
register(Implementation("FusedClipNorm", "fast", ANY_DEVICE, always))
register(Implementation("FusedClipNorm", "reference", ANY_DEVICE, always))


class FusedClipNorm:
    """Clip the 2-norm of all gradients together, as torch.nn.utils.clip_grad_norm_ does.

    With the keyword `optimizer`, one of FusedSGD, FusedAdagrad and FusedAdamW, the scaling is left to its
    next step, which saves one pass over the gradients: until then they keep their values. That is done only for
    exactly the gradients that this step takes; those of a part are scaled at once. A clip whose gradients are
    replaced or written to before the step, or dropped by `zero_grad()`, has no effect on later ones.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        max_norm: float,
        *,
        optimizer: FusedOptimizer | None = None,
        backend: str | None = None,
    ) -> None:
        """`parameters` tells the dtype of the limit `max_norm_t`, of shape [1]: float32 if there are none."""
        if optimizer is not None and not optimizer.takes_divisor:
            raise TypeError(f"{type(optimizer).__name__} cannot scale gradients in its step")
        first = next(iter(parameters), None)
        # On the CPU, whatever the device: the limit is compared there, and nobody has to wait for it.
        self.dtype = torch.float32 if first is None else first.dtype
        self.max_norm_t = torch.tensor([max_norm], dtype=self.dtype)
        self.norm_type = 2.0
        self.optimizer, self.backend = optimizer, backend
        self._native: Any = None

    @torch.no_grad()
    def clip_norm(self, parameters: Iterable[Tensor] | Tensor) -> Tensor:
        """Scale the gradients in place; returns their former norm, of shape [1], or a CPU 0.0 without any.

        ValueError when `norm_type` was set to something else than 2.
        """
        if self.norm_type != 2.0:
            raise ValueError(f"FusedClipNorm knows the 2-norm alone, not norm_type={self.norm_type}")
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        params = [param for param in params if param.grad is not None]
        grads: list[Tensor] = list(map(attrgetter("grad"), params))
        if not grads:
            return torch.tensor(0.0)
        chosen = choose("FusedClipNorm", grads[0].device.type, self.backend).name
        if chosen == "habana":
            self._native = self._native or native(NATIVE_MODULE, "FusedClipNorm")(params, float(self.max_norm_t))
            clipped: Tensor = self._native.clip_norm(params)
            return clipped
        if self.optimizer is not None and self.optimizer.pending_clip is not None:
            # What an earlier clip left to the step counts in the norm of this one.
            self.optimizer.pending_clip.carry_out()
            self.optimizer.pending_clip = None
        if chosen == "reference":
            return clip_norm_(grads, float(self.max_norm_t)).reshape(1)
        total = kernels.norm(grads) if chosen == NATIVE else None
        total = total_norm(grads) if total is None else total
        self._clip(params, grads, total, chosen == NATIVE)
        return total.reshape(1)

    def _clip(self, params: list[Tensor], grads: list[Tensor], total: Tensor, natively: bool) -> None:
        limit = float(self.max_norm_t)
        if total.device.type == "cpu" and bool(total + 1e-6 <= limit):
            # Multiplying by one changes nothing, and on the CPU it is known without waiting.
            return
        if self.optimizer is not None and _are_all_of(params, self.optimizer):
            divisor = ((total + 1e-6) / limit).clamp(min=1.0).float()
            self.optimizer.pending_clip = PendingClip(divisor, params, grads)
            return
        coefficient = torch.clamp(limit / (total + 1e-6), max=1.0)
        if not (natively and kernels.scale(grads, float(coefficient))):
            _scale(grads, coefficient)


def _are_all_of(params: list[Tensor], optimizer: FusedOptimizer) -> bool:
    """Whether these are the parameters that the next step of an optimizer takes, each once."""
    stepped = [param for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
    return len(params) == len(stepped) and set(map(id, params)) == set(map(id, stepped))


def _scale(grads: list[Tensor], coefficient: Tensor) -> None:
    parts = [local_part(grad, grad) if is_spread(grad) else grad for grad in grads]
    if not all(map(is_ordinary, parts)):
        for part in parts:
            part.mul_(coefficient.to(part.dtype))
        return
    for device in {part.device for part in parts}:
        here = [part for part in parts if part.device == device]
        torch._foreach_mul_(here, coefficient.to(device))
