"""Whether what has been cached is still what the user sees: the comparisons made before every step.

With thousands of small tensors they cost more than the kernel, nearly all of it in waiting for memory: a
parameter, its gradient and what they refer to are a dozen cache lines scattered over the heap. So the iteration
is left to C, nothing is fetched only to be compared with, and callers compare everything about one of the `runs`
of parameters, while it is in the cache, before they turn to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

from torch import Tensor, strided
from torch.nn import Parameter

RUN = 256
"""Parameters per run: with gradients and states some 300 KiB, a part of a second-level cache."""

_gradient = attrgetter("grad")


def runs(count: int) -> list[slice]:
    """Slices of at most RUN positions that cover `count` of them."""
    return [slice(start, start + RUN) for start in range(0, count, RUN)]


def same_objects(present: Collection[Any], cached: Sequence[Any]) -> bool:
    """Whether both hold the same objects, in order."""
    return len(present) == len(cached) and all(map(is_, present, cached))


def same_memory(tensors: Sequence[Tensor], anchors: Sequence[Tensor]) -> bool:
    """Whether every tensor has the storage, offset, shape and strides of its anchor."""
    return all(map(Tensor.is_set_to, tensors, anchors))


def same_places(tensors: Sequence[Tensor], addresses: list[int]) -> bool:
    """Whether the tensors start at these addresses."""
    return list(map(Tensor.data_ptr, tensors)) == addresses


class Memory:
    """Where tensors lie. It has to be kept alive by somebody else, or other tensors may come to lie there."""

    def __init__(self, anchors: Sequence[Tensor]) -> None:
        """`anchors` are tensors or aliases of them; they are kept only if some are not contiguous."""
        self._anchors = None if all(map(_is_regular, anchors)) else anchors
        self._sizes = list(map(Tensor.numel, anchors))
        self._addresses = list(map(Tensor.data_ptr, anchors)) if self._anchors is None else []

    def holds(self, tensors: Sequence[Tensor], run: slice = slice(None)) -> bool:
        """Whether `tensors`, those of a run, have just this memory, with the elements in the same order.

        A contiguous tensor may have another shape: that takes a third less time than `is_set_to`, which has to
        fetch the anchors too.
        """
        if self._anchors is not None:
            return same_memory(tensors, self._anchors[run])
        return (
            same_places(tensors, self._addresses[run])
            and all(map(Tensor.is_contiguous, tensors))
            and list(map(Tensor.numel, tensors)) == self._sizes[run]
        )


def _is_regular(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, Parameter) and tensor.layout is strided and tensor.is_contiguous()


def same_entries(entries: Sequence[dict[str, Any]], name: str, cached: Sequence[Tensor]) -> bool:
    """Whether every state dictionary still has its cached tensor under `name`."""
    return all(map(is_, map(dict.get, entries, repeat(name)), cached))


def same_states(entries: Sequence[dict[str, Any]], states: Mapping[str, Sequence[Tensor]], run: slice) -> bool:
    """Whether the state dictionaries of a run still have all their cached tensors."""
    present = entries[run]
    return all(same_entries(present, name, cached[run]) for name, cached in states.items())


def same_gradients(params: Sequence[Tensor], grads: Sequence[Tensor], addresses: list[int]) -> bool:
    """Whether the gradients of `params` are these tensors, and these start at the addresses."""
    return all(map(is_, map(_gradient, params), grads)) and same_places(grads, addresses)
