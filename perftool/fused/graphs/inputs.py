"""The parts of a call's arguments: the tensors that a graph reads, and a key for everything else."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from perftool.fused.graphs.record import GraphCaptureError

GraphKey = tuple[Hashable, ...]


@dataclass(frozen=True)
class CallInputs:
    """The leaves of (args, kwargs); `tensors` in order, None in `leaves` where one belongs."""

    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Any, ...]
    positions: tuple[int, ...]
    structure: TreeSpec

    def rebuild(self, tensors: tuple[torch.Tensor, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with other tensors in the places of this call's."""
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = tree_unflatten(leaves, self.structure)
        return args, kwargs

    def key(self) -> GraphKey:
        """Everything that must be equal to reuse a graph; GraphCaptureError for an unhashable value. Unlike Gaudi's key
        it includes the dtype: filling an integer graph from a float tensor would truncate.
        """
        for leaf in self.leaves:
            if not isinstance(leaf, Hashable):
                raise GraphCaptureError(f"An argument of type {type(leaf).__name__} cannot be part of a graph.")
        devices = ("cpu", "cuda")
        return (
            repr(self.structure),
            *((each.size(), each.stride(), each.dtype, each.device, each.requires_grad) for each in self.tensors),
            *((type(leaf), leaf) for leaf in self.leaves),
            *((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices),
        )


def flatten_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallInputs:
    """Split the arguments of a call; nested tuples, lists and dictionaries are supported."""
    leaves, structure = tree_flatten((args, kwargs))
    positions = tuple(index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
    tensors = tuple(leaves[index] for index in positions)
    values = tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    return CallInputs(tensors, values, positions, structure)
