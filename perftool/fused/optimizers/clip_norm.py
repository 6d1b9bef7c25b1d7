"""Gradient clipping: total = sqrt(sum of g*g); g *= min(1, max_norm/(total + 1e-6))."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from perftool.fused.dispatch import choose, native_op, register_everywhere
from perftool.fused.optimizers.tensors import alike, are_ordinary, total_norm

register_everywhere("FusedClipNorm")


class FusedClipNorm:
    """Clips the 2-norm of all gradients together, as torch.nn.utils.clip_grad_norm_ does."""

    def __init__(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Set the limit `max_norm_t`, of shape [1], in the dtype of the first parameter, or float32 if there are no
        parameters."""
        first = next(iter(parameters), None)
        # The limit stays on the CPU, because Python reads it in every call and must not wait for a device.
        self.dtype = torch.float32 if first is None else first.dtype
        self.max_norm_t = torch.tensor([max_norm], dtype=self.dtype)
        self.norm_type = 2.0
        self._native: Any = None

    @torch.no_grad()
    def clip_norm(self, parameters: Iterable[Tensor] | Tensor) -> Tensor:
        """Scale the gradients in place and return their original norm, of shape [1].

        If there are no gradients, the result is the scalar 0.0, on the CPU.

        Raise ValueError if `norm_type` was set to anything except 2.
        """
        if self.norm_type != 2.0:
            raise ValueError(f"FusedClipNorm computes the 2-norm only, not norm_type={self.norm_type}")
        params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        grads = [grad for param in params if (grad := param.grad) is not None]
        if not grads:
            return torch.tensor(0.0)
        limit = float(self.max_norm_t)
        if choose("FusedClipNorm", grads[0].device.type) == "habana":
            self._native = self._native or native_op("FusedClipNorm")(params, limit)
            clipped: Tensor = self._native.clip_norm(params)
            return clipped
        total = total_norm(grads)
        coefficient = torch.clamp(limit / (total + 1e-6), max=1.0)
        for parts, _ in alike(grads):
            if are_ordinary(parts):
                torch._foreach_mul_(parts, coefficient.to(parts[0].device, parts[0].dtype))
            else:
                for part in parts:
                    part.mul_(float(coefficient))
        return total.reshape(1)
