"""2-norms of many tensors with one read of each, summed in at least float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perftool.fused.flat import Layout, is_dense, linear

SUMMED = 32 * 1024
"""Elements per partial sum: one sum in single precision on a CPU is off by a thousandth from 25 million on."""
LARGE = 2**20
"""Elements from which a tensor is summed in parts; below, one sum is right to 1e-5 and takes one call."""


def norm(tensor: Tensor) -> Tensor:
    """The 2-norm of all elements, 0-dim."""
    return _plain(_partial_norms(linear(tensor)) if _is_large(tensor) else tensor)


def _is_large(tensor: Tensor) -> bool:
    return tensor.numel() >= LARGE and tensor.device.type == "cpu" and is_dense(tensor)


def _plain(tensor: Tensor) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return result


def _partial_norms(values: Tensor) -> Tensor:
    """[parts] the norms of SUMMED elements each, from one call, and of what is left over."""
    rows = values.numel() // SUMMED
    dtype = torch.promote_types(values.dtype, torch.float32)
    norms = torch.linalg.vector_norm(values[: rows * SUMMED].view(rows, SUMMED), dim=1, dtype=dtype)
    rest = values[rows * SUMMED :]
    return torch.cat([norms, _plain(rest).view(1)]) if rest.numel() else norms


def buffer_norm(buffer: Tensor, layout: Layout) -> Tensor:
    """The 2-norm of all tensors in a flat buffer, 0-dim: half the time of one norm for each."""
    total = _plain(_partial_norms(buffer))
    if buffer.device.type == "cpu" and not bool(total.isfinite()):
        # Only one norm for each tells what is in the padding.
        total = _plain(layout.norms(buffer))
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
    return _plain(torch.stack([part.to(parts[0].device, dtype) for part in parts]))


def _norm_of_alike(tensors: list[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return norm(tensors[0])
    large = [_is_large(tensor) for tensor in tensors]
    parts = [_partial_norms(linear(each)) for each, is_large in zip(tensors, large, strict=True) if is_large]
    small = [tensor for tensor, is_large in zip(tensors, large, strict=True) if not is_large]
    if small:
        dtype = torch.promote_types(small[0].dtype, torch.float32)
        parts.append(torch.stack(torch._foreach_norm(small, 2, dtype=dtype)))
    return _plain(torch.cat(parts))


def divisor_for(total: Tensor, max_norm: float) -> Tensor | None:
    """max(1, total/max_norm), by which gradients are divided to have at most that norm; None for no change.

    Only the CPU can tell without waiting for the device, so elsewhere it is never None.
    """
    if total.device.type == "cpu" and bool(total <= max_norm):
        return None
    return (total / max_norm).clamp(min=1.0).float()
