"""2-norms of many tensors with one read of each, summed in at least float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perftool.fused.flat import Layout, is_dense, linear

SUMMED = 32 * 1024
"""Elements per partial sum of a large tensor on the CPU: one sum in single precision is off by 1e-5 of a
million elements, and by a thousandth of 25 million."""
LARGE = 8 * SUMMED


def norm(tensor: Tensor) -> Tensor:
    """The 2-norm of all elements, 0-dim."""
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    if tensor.device.type != "cpu" or tensor.numel() < LARGE or not is_dense(tensor):
        return _plain(tensor, dtype)
    values = linear(tensor)
    whole = values.numel() // SUMMED * SUMMED
    sums = torch.linalg.vector_norm(values[:whole].view(-1, SUMMED), dim=1, dtype=dtype)
    return _plain(torch.cat([sums, _plain(values[whole:], dtype).view(1)]), dtype)


def _plain(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(tensor, dtype=dtype)
    return result


def buffer_norm(buffer: Tensor, layout: Layout) -> Tensor:
    """The 2-norm of all tensors in a flat buffer, 0-dim: half the time of one norm for each."""
    total = norm(buffer)
    if buffer.device.type == "cpu" and not bool(total.isfinite()):
        # Only one norm for each tells what is in the padding.
        total = norm(layout.norms(buffer))
    return total


def total_norm(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all tensors together: 0-dim, on the device of the first; 0.0 on the CPU without any."""
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
    small = [tensor for tensor in tensors if tensor.numel() < LARGE]
    parts = [norm(tensor) for tensor in tensors if tensor.numel() >= LARGE]
    if small:
        dtype = torch.promote_types(small[0].dtype, torch.float32)
        parts += torch._foreach_norm(small, 2, dtype=dtype)
    return norm(torch.stack(parts))


def divisor_for(total: Tensor, max_norm: float) -> Tensor | None:
    """max(1, total/max_norm), by which gradients are divided to have at most that norm; None for no change.

    Only the CPU can tell without waiting for the device, so elsewhere it is never None.
    """
    if total.device.type == "cpu" and bool(total <= max_norm):
        return None
    return (total / max_norm).clamp(min=1.0).float()
