"""2-norms of many tensors with one read of each, summed in at least float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perftool.fused.flat import find


def norm(tensor: Tensor) -> Tensor:
    """The 2-norm of all elements, 0-dim."""
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    result: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return result


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all tensors together: 0-dim, on the device of the first; 0.0 on the CPU without any.

    Tensors that fill a flat buffer of `perftool.fused.flat` are read with one call.
    """
    flat = find(tensors)
    if flat is not None:
        return flat.total_norm()
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        alike.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    parts = list(map(_norm_of_alike, alike.values()))
    if len(parts) < 2:
        return parts[0] if parts else torch.zeros(())
    dtype = max((part.dtype for part in parts), key=lambda each: each.itemsize)
    return norm(torch.stack([part.to(parts[0].device, dtype) for part in parts]))


def _norm_of_alike(tensors: list[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return norm(tensors[0])
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    return norm(torch.stack(torch._foreach_norm(tensors, 2, dtype=dtype)))


def divisor_for(total: Tensor, max_norm: float) -> Tensor | None:
    """max(1, total/max_norm), by which gradients are divided to have at most that norm; None for no change.

    Only the CPU can tell without waiting for the device, so elsewhere it is never None.
    """
    if total.device.type == "cpu" and bool(total <= max_norm):
        return None
    return (total / max_norm).clamp(min=1.0).float()
