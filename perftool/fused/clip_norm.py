"""total = sqrt(sum of g*g); g *= min(1, max_norm/(total + 1e-6))."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import (
    ANY_DEVICE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.flat import find
from perftool.fused.norms import buffer_norm, total_norm
from perftool.fused.optimizer import FusedOptimizer
from perftool.fused.reference import clip_norm_

NATIVE_MODULE = "hpex.normalization"

register_native("FusedClipNorm", NATIVE_MODULE, "FusedClipNorm")
register(Implementation("FusedClipNorm", "fast", ANY_DEVICE, always))
register(Implementation("FusedClipNorm", "reference", ANY_DEVICE, always))


class FusedClipNorm:
    """Clip the 2-norm of all gradients together, as torch.nn.utils.clip_grad_norm_ does.

    With the keyword `optimizer`, one of FusedSGD, FusedAdagrad and FusedAdamW, the scaling is left to its
    next step, which saves one pass over the gradients: until then they keep their values.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        max_norm: float,
        *,
        optimizer: FusedOptimizer | None = None,
        backend: str | None = None,
    ) -> None:
        """`parameters` tells the dtype in which `max_norm` is held, float32 if there are none."""
        if optimizer is not None and not optimizer.takes_divisor:
            raise TypeError(f"{type(optimizer).__name__} cannot scale gradients in its step")
        first = next(iter(parameters), None)
        self.max_norm = torch.tensor(max_norm, dtype=torch.float32 if first is None else first.dtype)
        self.norm_type = 2.0
        self.optimizer, self.backend = optimizer, backend
        self._native: Any = None

    @torch.no_grad()
    def clip_norm(self, parameters: Iterable[Tensor] | Tensor) -> Tensor:
        """Scale the gradients in place; returns their former norm, of shape [1], or a CPU 0.0 without any."""
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        flat = self.optimizer.flat_gradients(params) if self.optimizer else None
        grads = flat.views if flat else [grad for grad in map(attrgetter("grad"), params) if grad is not None]
        if not grads:
            return torch.tensor(0.0)
        chosen = choose("FusedClipNorm", grads[0].device.type, self.backend).name
        if chosen == "habana":
            self._native = self._native or native(NATIVE_MODULE, "FusedClipNorm")(params, float(self.max_norm))
            clipped: Tensor = self._native.clip_norm(params)
            return clipped
        if chosen == "reference":
            return clip_norm_(grads, float(self.max_norm)).reshape(1)
        flat = flat or find(grads)
        if flat is None:
            return self._clip(grads, total_norm(grads)).reshape(1)
        return self._clip([flat.buffer], buffer_norm(flat.buffer, flat.layout)).reshape(1)

    def _clip(self, grads: list[Tensor], total: Tensor) -> Tensor:
        limit = float(self.max_norm)
        if total.device.type == "cpu" and bool(total + 1e-6 <= limit):
            # Multiplying by one changes nothing, and on the CPU it is known without waiting.
            self._leave_to_optimizer(None)
        elif self.optimizer is not None:
            self._leave_to_optimizer(((total + 1e-6) / limit).clamp(min=1.0).float())
        else:
            _scale(grads, torch.clamp(limit / (total + 1e-6), max=1.0))
        return total

    def _leave_to_optimizer(self, divisor: Tensor | None) -> None:
        if self.optimizer is not None:
            self.optimizer.grad_divisor = divisor


def _scale(grads: list[Tensor], coefficient: Tensor) -> None:
    for device in {grad.device for grad in grads}:
        here = [grad for grad in grads if grad.device == device]
        torch._foreach_mul_(here, coefficient.to(device))
