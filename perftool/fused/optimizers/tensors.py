"""Properties of tensors for the optimizers: memory layout, the local part of a sharded one, norms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

LARGE, ROW = 2**20, 2**16
"""Elements from which a norm is summed in parts, and elements of a part: on a CPU one sum in float32 over 25 million
elements is off by a thousandth, over a million by less than a hundred-thousandth."""

_norm: Callable[..., Tensor] = torch.linalg.vector_norm
_layout, _dtype = attrgetter("layout"), attrgetter("dtype")


def is_ordinary(tensor: Tensor) -> bool:
    """Whether a tensor is plain strided memory: neither sparse nor a wrapper around other tensors."""
    kind = type(tensor)
    known = kind is Tensor or kind is Parameter or kind.__torch_dispatch__ is Tensor.__torch_dispatch__
    return known and tensor.layout is torch.strided


def are_regular(lists: Sequence[Sequence[Any]], dtypes: Sequence[torch.dtype]) -> bool:
    """Whether all are contiguous tensors of one device, each list of its dtype, with equal sizes at each position. This
    is the usual case; whole lists are checked, because that takes less time than to check each tensor.
    """
    if not {kind for each in lists for kind in map(type, each)} <= {Tensor, Parameter}:
        return False
    sizes = list(map(Tensor.numel, lists[0]))
    return (
        {layout for each in lists for layout in map(_layout, each)} == {torch.strided}
        and len({place for each in lists for place in map(Tensor.get_device, each)}) == 1
        and all({*map(_dtype, each)} == {dtype} for each, dtype in zip(lists, dtypes, strict=True))
        and all(list(map(Tensor.numel, each)) == sizes for each in lists)
        and all(all(map(Tensor.is_contiguous, each)) for each in lists)
    )


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
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


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
    """The tensor, or if `like` is sharded its part on this rank, sharded alike; both share memory unless it moved."""
    if is_sharded(like):
        if tensor.placements != like.placements or tensor.device_mesh != like.device_mesh:
            tensor = tensor.redistribute(like.device_mesh, like.placements)
        tensor = tensor.to_local()
    return tensor  # type: ignore[no-any-return]


def alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The positions of the tensors that share a device and a dtype."""
    kinds: dict[Any, list[int]] = {}
    for index, kind in enumerate(zip(map(Tensor.get_device, tensors), map(_dtype, tensors), strict=True)):
        kinds.setdefault(kind, []).append(index)
    return list(kinds.values())


def norms(tensors: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """[n] the 2-norm of each of some tensors of one device and dtype, summed and returned in at least float32.

    `owners` are the parameters whose local parts the tensors are; the norm of a sharded one is that of the whole.
    Norms of wrappers are on the CPU, because a wrapper may not know the operators that follow.
    """
    if all(map(is_ordinary, tensors)):
        found = torch.stack(_norms(list(tensors)))
        found = found.to(torch.promote_types(found.dtype, torch.float32))
    else:
        found = torch.tensor([float(_norm(each)) for each in tensors])
    return _sum_over_ranks(found.square(), owners).sqrt() if any(map(is_sharded, owners)) else found


def total_norm(tensors: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all tensors together: 0-dim, on the device of the first."""
    parts = [norms([tensors[i] for i in each], [owners[i] for i in each]) for each in alike(tensors)]
    dtype = max((part.dtype for part in parts), key=lambda each: each.itemsize)
    return _norm(torch.cat([part.to(parts[0].device, dtype) for part in parts]))


def _norms(tensors: list[Tensor]) -> list[Tensor]:
    # The norm of bfloat16 is summed in float32 and rounded once; asking for float32 would copy the tensor.
    like = tensors[0]
    dtype = None if like.dtype == torch.bfloat16 else torch.promote_types(like.dtype, torch.float32)
    large = {i for i, each in enumerate(tensors) if like.is_cpu and each.numel() >= LARGE and is_dense(each)}
    others = [each for i, each in enumerate(tensors) if i not in large]
    found = iter(torch._foreach_norm(others, 2, dtype=dtype) if others else ())
    return [_large_norm(each, dtype) if i in large else next(found) for i, each in enumerate(tensors)]


def _large_norm(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    values, whole = linear(tensor), tensor.numel() // ROW * ROW
    rows = _norm(values[:whole].view(-1, ROW), dim=1, dtype=dtype)
    rest = _norm(values[whole:], dtype=dtype)
    return _norm(torch.cat([rows, rest.view(1)]))


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
