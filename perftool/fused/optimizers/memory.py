"""What the fused kernels take for granted of a tensor, and how one that is different is brought to it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter


def is_ordinary(tensor: Tensor) -> bool:
    """Whether a tensor is memory and strides and nothing else: no sparse layout, no wrapper around other tensors."""
    kind = type(tensor)
    known = kind is Tensor or kind is Parameter or kind.__torch_dispatch__ is Tensor.__torch_dispatch__
    return known and tensor.layout is torch.strided


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def linear(tensor: Tensor) -> Tensor:
    """The elements of a dense tensor in memory order: a 1-dim view."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def has_layout(tensor: Tensor, like: Tensor) -> bool:
    """Whether a tensor has the dtype, shape and strides of another."""
    return tensor.dtype == like.dtype and tensor.shape == like.shape and tensor.stride() == like.stride()


def conform(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor, or a copy of it in the dtype and memory layout of `like`, which the private kernels rely on."""
    return tensor if has_layout(tensor, like) else torch.empty_like(like).copy_(tensor)
