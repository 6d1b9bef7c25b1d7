"""Properties of tensors for the optimizers: memory layout, the local part of a sharded one, norms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

LARGE, ROW = 2**20, 2**16
"""Elements from which a norm is summed in parts, and elements of a part: on a CPU one sum in float32 over 25 million
elements is off by a thousandth, over a million by less than a hundred-thousandth."""


def is_ordinary(tensor: Tensor) -> bool:
    """Whether a tensor is plain strided memory: neither sparse nor a wrapper around other tensors."""
    kind = type(tensor)
    known = kind is Tensor or kind is Parameter or kind.__torch_dispatch__ is Tensor.__torch_dispatch__
    return known and tensor.layout is torch.strided


def are_regular(params: list[Tensor], grads: list[Tensor], states: list[list[Tensor]]) -> bool:
    """Whether all are contiguous tensors of one device, each list of one dtype, with equal sizes at each position. This
    is the usual case. Whole lists are checked, because checking each tensor takes longer than the step of a small
    model.
    """
    if not {*map(type, params), *map(type, grads)} <= {Tensor, Parameter}:
        return False
    if set(map(_layout, grads)) != {torch.strided}:
        return False
    places, sizes = set[int](), list(map(Tensor.numel, params))
    lists = [params, grads, *states]
    for each in lists:
        places.update(map(Tensor.get_device, each))
        if len(set(map(_dtype, each))) > 1 or list(map(Tensor.numel, each)) != sizes:
            return False
    return len(places) == 1 and all(all(map(Tensor.is_contiguous, each)) for each in lists)


_layout, _dtype = attrgetter("layout"), attrgetter("dtype")


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def linear(tensor: Tensor) -> Tensor:
    """The elements of a dense tensor in memory order: a 1-dim view."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def conform(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor, or a copy of it in the dtype and memory layout of `like`, which the fused kernels do not check."""
    return tensor if tensor.dtype == like.dtype and is_laid_like(tensor, like) else torch.empty_like(like).copy_(tensor)


def is_laid_like(tensor: Tensor, like: Tensor) -> bool:
    """Whether a tensor has the shape and strides of another."""
    return tensor.shape == like.shape and tensor.stride() == like.stride()


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    if type(tensor) is Tensor or type(tensor) is Parameter:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    # A program that never imported the module has no DTensor, and the check costs nothing.
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Any, like: Any) -> Tensor:
    """The part of a DTensor on this rank, sharded as `like` is; it shares memory unless it had to be moved."""
    if tensor.placements != like.placements or tensor.device_mesh != like.device_mesh:
        tensor = tensor.redistribute(like.device_mesh, like.placements)
    part: Tensor = tensor.to_local()
    return part


def norms(tensors: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """[n] the 2-norm of each of some tensors of one device and dtype, summed and returned in at least float32.

    `owners` are the parameters whose local parts the tensors are; the norm of a sharded one is that of the whole.
    Norms of wrappers are on the CPU, because a wrapper may not know the operators that follow.
    """
    if all(map(is_ordinary, tensors)):
        found = torch.stack(_norms(list(tensors)))
        found = found.to(torch.promote_types(found.dtype, torch.float32))
    else:
        found = torch.tensor([float(torch.linalg.vector_norm(each)) for each in tensors])
    return _sum_over_ranks(found.square(), owners).sqrt() if any(map(is_sharded, owners)) else found


def total_norm(tensors: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all tensors together: 0-dim, on the device of the first; 0.0 on the CPU without any."""
    kinds = list(zip(map(Tensor.get_device, tensors), map(_dtype, tensors), strict=True))
    parts = []
    for kind in dict.fromkeys(kinds):
        same = [index for index, each in enumerate(kinds) if each == kind]
        parts.append(norms([tensors[i] for i in same], [owners[i] for i in same]))
    if not parts:
        return torch.zeros(())
    dtype = max((part.dtype for part in parts), key=lambda each: each.itemsize)
    return _norm(torch.cat([part.to(parts[0].device, dtype) for part in parts]))


def _norms(tensors: list[Tensor]) -> list[Tensor]:
    # The norm of bfloat16 is summed in float32 and rounded once; asking for float32 would copy the tensor.
    like = tensors[0]
    dtype = None if like.dtype == torch.bfloat16 else torch.promote_types(like.dtype, torch.float32)
    sizes = enumerate(map(Tensor.numel, tensors)) if like.is_cpu else ()
    large = [i for i, size in sizes if size >= LARGE and is_dense(tensors[i])]
    others = [each for i, each in enumerate(tensors) if i not in set(large)] if large else tensors
    found = list(torch._foreach_norm(others, 2, dtype=dtype)) if others else []
    for i in large:
        found.insert(i, _large_norm(tensors[i], dtype))
    return found


def _large_norm(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    values, whole = linear(tensor), tensor.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(values[:whole].view(-1, ROW), dim=1, dtype=dtype)
    rest = torch.linalg.vector_norm(values[whole:], dtype=dtype)
    return _norm(torch.cat([rows, rest.view(1)]))


def _norm(values: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm


def _sum_over_ranks(values: Tensor, owners: Sequence[Tensor]) -> Tensor:
    """`values` [n], every entry summed over the ranks that share its owner: one collective per way of sharding."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    sharded: dict[Any, list[int]] = {}
    for index, owner in enumerate(owners):
        if isinstance(owner, DTensor):
            sharded.setdefault((owner.device_mesh, owner.placements), []).append(index)
    for (mesh, placements), places in sharded.items():
        where = torch.tensor(places, device=values.device)
        kinds = [Partial() if each.is_shard() else Replicate() for each in placements]
        whole = DTensor.from_local(values[where], mesh, kinds, run_check=False).full_tensor()
        values = values.index_copy(0, where, whole)
    return values
