"""Tensor helpers for the optimizers: memory layouts, local parts of sharded tensors, norms."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

LARGE = 2**22
"""The number of elements that a norm sums at a time: on a CPU, the error of a float32 sum is 0.1 % for 25 million
elements, and below 0.01 % for 4 million."""

_dtype = attrgetter("dtype")


def are_ordinary(tensors: Sequence[Tensor]) -> bool:
    """Whether none of the tensors is a wrapper around other tensors."""
    kinds: set[Any] = {*map(type, tensors)} - {Tensor, Parameter}
    return all(kind.__torch_dispatch__ is Tensor.__torch_dispatch__ for kind in kinds)


def are_regular(lists: Sequence[Sequence[Any]], dtypes: Sequence[torch.dtype]) -> bool:
    """Whether all tensors are contiguous and on one device, with the given dtype per list and equal sizes at each
    position. This is the usual case, and checking whole lists is faster than checking each tensor.
    """
    everything = [each for tensors in lists for each in tensors]
    if not {*map(type, everything)} <= {Tensor, Parameter}:
        return False
    sizes = list(map(Tensor.numel, lists[0]))
    return (
        len({*map(Tensor.get_device, everything)}) == 1
        and all({*map(_dtype, each)} == {dtype} for each, dtype in zip(lists, dtypes, strict=True))
        and all(list(map(Tensor.numel, each)) == sizes for each in lists[1:])
        and all(map(Tensor.is_contiguous, everything))
    )


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order of dimensions."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def linear(tensor: Tensor) -> Tensor:
    """Return a 1-dim view of the elements of a dense tensor in memory order."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def has_layout_of(tensor: Tensor, like: Tensor) -> bool:
    """Whether a tensor has the same shape and strides as `like`."""
    return tensor.shape == like.shape and tensor.stride() == like.stride()


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    if type(tensor) is Tensor or type(tensor) is Parameter:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    # If the module was never imported, no DTensor exists.
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Any, like: Any) -> Tensor:
    """Return the tensor or, if `like` is sharded, its local part with the same sharding. The part shares the tensor's
    memory unless the tensor has to be redistributed."""
    if is_sharded(like):
        if tensor.placements != like.placements or tensor.device_mesh != like.device_mesh:
            tensor = tensor.redistribute(like.device_mesh, like.placements)
        tensor = tensor.to_local()
    return tensor  # type: ignore[no-any-return]


def alike(tensors: list[Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Group tensors by device and dtype. Each group is a pair: the local parts of its tensors, and the tensors."""
    if not tensors:
        return []
    parts = [local_part(each, each) for each in tensors] if any(map(is_sharded, tensors)) else tensors
    lists: Any = [tensors] if parts is tensors else [tensors, parts]
    return [(each[-1], each[0]) for each, _ in _group_tensors_by_device_and_dtype(lists).values()]  # type: ignore[misc]


def norms(tensors: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """Return the 2-norms, [n], of tensors that share a device and a dtype, in at least float32.

    `owners` are the parameters that the tensors are local parts of; for a sharded parameter, the norm covers all of its
    parts. Norms of tensor wrappers are on the CPU, because a wrapper may not support the operators that come next.
    """
    if not are_ordinary(tensors):
        found = torch.tensor([float(torch.linalg.vector_norm(each)) for each in tensors])
    else:
        # Compute float16 norms in float32, because they might overflow.
        dtype = torch.float32 if tensors[0].dtype == torch.float16 else None
        parts = [_norms_of_parts(each, dtype) if each.numel() > LARGE else each for each in tensors]
        found = torch.stack(torch._foreach_norm(parts, 2, dtype=dtype))
        found = found.to(torch.promote_types(found.dtype, torch.float32))
    return _sum_over_ranks(found.square(), owners).sqrt() if any(map(is_sharded, owners)) else found


def _norms_of_parts(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return a tensor with the same norm as `tensor`: the norms of its pieces if it is dense and on a CPU, otherwise
    `tensor` itself."""
    if not tensor.is_cpu or not is_dense(tensor):
        return tensor
    return torch.stack(torch._foreach_norm(torch.split(linear(tensor), LARGE), 2, dtype=dtype))


def total_norm(tensors: list[Tensor]) -> Tensor:
    """Return the 2-norm of all tensors together, as a 0-dim tensor on the device of the first tensor."""
    found = [norms(*group) for group in alike(tensors)]
    dtype = max((part.dtype for part in found), key=lambda each: each.itemsize)
    parts = [part.to(tensors[0].device, dtype) for part in found]
    return torch.linalg.vector_norm(torch.cat(parts))  # type: ignore[no-any-return]


def _sum_over_ranks(values: Tensor, owners: Sequence[Tensor]) -> Tensor:
    """Sum every entry of `values` [n] over the ranks that share its owner, with one collective per sharding."""
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
