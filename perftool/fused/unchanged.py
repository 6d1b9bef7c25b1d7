"""Whether what has been cached is still what the user sees: the comparisons made before every step.

With thousands of small tensors they would cost more than the kernel, nearly all of it in waiting for memory: a
parameter, its gradient and its states are a dozen objects scattered over the heap. So tensors are asked one by
one only when a snapshot of them does not hold, and what iteration is left is left to C.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, eq, is_
from typing import Any

from torch import Tensor

from perftool.fused import snapshot

_gradient = attrgetter("grad")


def same_objects(present: Collection[Any], cached: Sequence[Any]) -> bool:
    """Whether both hold the same objects, in order."""
    return len(present) == len(cached) and all(map(is_, present, cached))


def same_memory(tensors: Sequence[Tensor], anchors: Sequence[Tensor]) -> bool:
    """Whether every tensor has the storage, offset, shape and strides of its anchor."""
    return all(map(Tensor.is_set_to, tensors, anchors))


def same_states(entries: Sequence[dict[str, Any]], states: Mapping[str, Sequence[Tensor]]) -> bool:
    """Whether the state dictionaries still have all their cached tensors."""
    return all(all(map(is_, map(dict.get, entries, repeat(name)), cached)) for name, cached in states.items())


class Anchored:
    """Tensors, and for each an anchor: an alias of the memory it is expected to have."""

    def __init__(self, tensors: Sequence[Tensor], anchors: list[Tensor] | None = None) -> None:
        """Without `anchors` the memory that the tensors have now."""
        self.tensors = tensors
        self.anchors = [tensor.detach() for tensor in tensors] if anchors is None else anchors
        self._snapshot: snapshot.Snapshot | None = None
        self._without_snapshots = False

    def hold(self) -> bool:
        """Whether every tensor has the storage, offset, shape and strides of its anchor."""
        if self._snapshot is not None and self._snapshot.holds():
            return True
        if not same_memory(self.tensors, self.anchors):
            return False
        if not self._without_snapshots:
            self._snapshot = snapshot.of_tensors(self.tensors)
            self._without_snapshots = self._snapshot is None
        return True


class Gradients:
    """Parameters, and for each the tensor that is expected to be its gradient, at its place in memory."""

    def __init__(self, params: Sequence[Tensor], grads: Sequence[Tensor], addresses: Sequence[int]) -> None:
        self._params, self._grads, self._addresses = params, grads, addresses
        self._layouts = _layouts(grads)
        self._snapshot: snapshot.Snapshot | None = None

    def hold(self) -> bool:
        """Whether all parameters have these gradients, and these are where and as they were."""
        if self._snapshot is not None and self._snapshot.holds():
            return True
        if not (all(map(is_, map(_gradient, self._params), self._grads)) and self._are_in_place()):
            return False
        self._snapshot = snapshot.of_gradients(self._params)
        return True

    def _are_in_place(self) -> bool:
        return all(map(eq, map(Tensor.data_ptr, self._grads), self._addresses)) and self._layouts == _layouts(
            self._grads
        )


def _layouts(tensors: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    return [(tensor.shape, tensor.stride()) for tensor in tensors]
