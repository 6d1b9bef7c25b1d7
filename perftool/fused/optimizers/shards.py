"""Tensors that are spread over ranks (`DTensor`): their local parts, and sums over all ranks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    # A program that never imported the module holds none, and pays nothing for the question.
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Any, like: Any) -> Tensor:
    """The part of a DTensor on this rank, spread as `like` is; it shares memory unless it had to be moved."""
    if tensor.placements != like.placements or tensor.device_mesh != like.device_mesh:
        tensor = tensor.redistribute(like.device_mesh, like.placements)
    part: Tensor = tensor.to_local()
    return part


def sum_over_ranks(values: Tensor, owners: Sequence[Tensor]) -> Tensor:
    """`values` [n] with every entry summed over the ranks among which its owner is spread.

    One collective per way of spreading; ordinary owners keep their values.
    """
    spread: dict[Any, list[int]] = {}
    for index, owner in enumerate(owners):
        if is_spread(owner):
            spread.setdefault((owner.device_mesh, owner.placements), []).append(index)  # type: ignore[attr-defined]
    for (mesh, placements), places in spread.items():
        where = torch.tensor(places, device=values.device)
        values = values.index_copy(0, where, _summed(values[where], mesh, placements))
    return values


def _summed(parts: Tensor, mesh: Any, placements: Sequence[Any]) -> Tensor:
    from torch.distributed.tensor import DTensor, Partial, Replicate

    kinds = [Partial() if each.is_shard() else Replicate() for each in placements]
    whole: Tensor = DTensor.from_local(parts, mesh, kinds, run_check=False).full_tensor()
    return whole
