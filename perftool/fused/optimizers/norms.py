"""2-norms of many tensors with one read of each, summed in at least float32, over all ranks where they are spread."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from perftool.fused.optimizers.batches import SMALL
from perftool.fused.optimizers.memory import is_dense, is_ordinary, linear
from perftool.fused.optimizers.shards import is_spread, local_part, sum_over_ranks

SUMMED = 32 * 1024
"""Elements per partial sum: one sum in single precision on a CPU is off by a thousandth from 25 million on."""
SINGLE = 4 * SUMMED
"""Elements up to which one sum will do for the norm of all: it is off by less than a ten thousandth."""
ROW = 64
"""Elements per row of small tensors laid end to end; a row belongs to one tensor."""
CHUNK = 256
"""Small tensors that are copied end to end at a time: a temporary that stays in the cache."""


_place, _dtype, _device = attrgetter("device", "dtype"), attrgetter("dtype"), attrgetter("device")


def norms(tensors: Sequence[Tensor], owners: Sequence[Tensor] | None = None) -> Tensor:
    """[n] the 2-norm of each of some tensors of one device and dtype.

    `owners` are the parameters whose local parts the tensors are; where one is spread over ranks, the norm is
    that of the whole.
    """
    squares = _squares(tensors)
    return (squares if owners is None else sum_over_ranks(squares, owners)).sqrt()


def total_norm(tensors: Sequence[Tensor], owners: Sequence[Tensor] | None = None) -> Tensor:
    """The 2-norm of all tensors together: 0-dim, on the device of the first; 0.0 on the CPU without any.

    `owners` as for `norms`; without them DTensors among `tensors` own their local parts.
    """
    owners = tensors if owners is None else owners
    kinds = {*map(type, tensors), *map(type, owners)} - {Tensor, Parameter}
    # Sets one after the other: a pair for each tensor would wake the collector of garbage.
    if not kinds and len(set(map(_dtype, tensors))) == 1 and len(set(map(_device, tensors))) == 1:
        return norm_of_alike(list(tensors))
    alike: dict[tuple[Any, ...], list[tuple[Tensor, Tensor]]] = {}
    for tensor, owner in zip(tensors, owners, strict=True):
        alike.setdefault((*_place(tensor), is_spread(owner), is_ordinary(tensor)), []).append((tensor, owner))
    parts = [_total_of_alike([each for each, _ in same], [owner for _, owner in same]) for same in alike.values()]
    if len(parts) < 2:
        return parts[0] if parts else torch.zeros(())
    dtype = max((part.dtype for part in parts), key=lambda each: each.itemsize)
    return _norm(torch.stack([part.to(parts[0].device, dtype) for part in parts]))


def _total_of_alike(tensors: list[Tensor], owners: list[Tensor]) -> Tensor:
    if is_spread(owners[0]):
        pairs = zip(tensors, owners, strict=True)
        parts = [local_part(each, owner) if is_spread(each) else each for each, owner in pairs]
        return sum_over_ranks(_squares(parts), owners).sum().sqrt()
    return norm_of_alike(tensors) if is_ordinary(tensors[0]) else _squares(tensors).sum().sqrt()


def norm_of_alike(tensors: list[Tensor]) -> Tensor:
    """`total_norm` of ordinary tensors of one device and dtype, of which there is at least one."""
    if tensors[0].device.type != "cpu":
        return _norm(torch.stack(torch._foreach_norm(tensors, 2, dtype=_sum_dtype(tensors[0]))))
    small, large = _by_size(tensors)
    single = [tensors[i] for i in large if tensors[i].numel() <= SINGLE]
    parts = [_partial_norms(tensors[i]) for i in large if tensors[i].numel() > SINGLE]
    parts += [torch.stack(torch._foreach_norm(single, 2, dtype=_sum_dtype(tensors[0])))] if single else []
    # The norm of all needs no rows: end to end is enough.
    parts += [_norm(_end_to_end(each)).view(1) for each in _chunks(tensors, small)]
    return _norm(torch.cat(parts))


def _by_size(tensors: Sequence[Tensor]) -> tuple[Sequence[int], Sequence[int]]:
    """The places of the small and of the large tensors."""
    sizes = list(map(Tensor.numel, tensors))
    if max(sizes) < SMALL:
        return range(len(sizes)), ()
    small = [i for i, size in enumerate(sizes) if size < SMALL]
    return small, [i for i, size in enumerate(sizes) if size >= SMALL]


def _chunks(tensors: Sequence[Tensor], places: Sequence[int]) -> Iterator[list[Tensor]]:
    """The tensors at some places, CHUNK of them at a time."""
    for start in range(0, len(places), CHUNK):
        yield [tensors[i] for i in places[start : start + CHUNK]]


def _norm(tensor: Tensor) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(tensor, dtype=_sum_dtype(tensor))
    return result


def _sum_dtype(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def norm_on_cpu(tensor: Tensor) -> float:
    """The 2-norm of one tensor on the CPU, where nobody waits for a number."""
    parts = _partial_norms(tensor)
    return float(parts) if parts.numel() == 1 else float(_norm(parts))


def _partial_norms(tensor: Tensor) -> Tensor:
    """[parts] the norms of SUMMED elements each, from one call, and of what is left over."""
    size = tensor.numel()
    if size < 2 * SUMMED or tensor.device.type != "cpu":
        return _norm(tensor).view(1)
    if not tensor.is_contiguous() and not is_dense(tensor):
        return _norm(tensor).view(1)
    values, (rows, left) = linear(tensor), divmod(size, SUMMED)
    whole = values[: rows * SUMMED] if left else values
    parts = torch.linalg.vector_norm(whole.view(rows, SUMMED), dim=1, dtype=_sum_dtype(values))
    return torch.cat([parts, _norm(values[rows * SUMMED :]).view(1)]) if left else parts


def _squares(tensors: Sequence[Tensor]) -> Tensor:
    """[n] the sum of squares of each tensor."""
    if not all(map(is_ordinary, tensors)):
        return torch.stack([_norm(tensor).square() for tensor in tensors])
    if tensors[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(tensors), 2, dtype=_sum_dtype(tensors[0]))).square()
    small, large = _by_size(tensors)
    found = tensors[0].new_zeros(len(tensors), dtype=_sum_dtype(tensors[0]))
    if large:
        parts = [_partial_norms(tensors[i]) for i in large]
        owners = [i for i, part in zip(large, parts, strict=True) for _ in range(part.numel())]
        found.index_add_(0, torch.tensor(owners), torch.cat(parts).square_())
    if small:
        small_norms = [Rows(each).norms() for each in _chunks(tensors, small)]
        found[list(small)] = torch.cat(small_norms).square_()
    return found


def _end_to_end(tensors: list[Tensor]) -> Tensor:
    """[elements] a copy of all tensors, one after the other."""
    return torch.cat(tensors if have_one_dimension(tensors) else [tensor.reshape(-1) for tensor in tensors])


def have_one_dimension(tensors: list[Tensor]) -> bool:
    """Whether all are vectors, which need no view to lie end to end."""
    return set(map(Tensor.dim, tensors)) == {1}


class _Layout:
    """Where small tensors of some sizes lie when they are copied end to end, each padded to whole rows."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.counts = [-(-size // ROW) for size in sizes]
        self.gaps = [count * ROW - size for size, count in zip(sizes, self.counts, strict=True)]
        self.whole = not any(self.gaps)
        self.owner = torch.repeat_interleave(torch.tensor(self.counts))
        pairs = zip(sizes, self.gaps, strict=True)
        self.lengths = list(sizes) if self.whole else [length for pair in pairs for length in pair]


_layout = functools.lru_cache(maxsize=256)(_Layout)


class Rows:
    """Copies of small tensors of one device and dtype, end to end, each padded with zeros to whole rows."""

    def __init__(self, tensors: list[Tensor], sizes: Sequence[int] | None = None) -> None:
        """`sizes`: the numbers of elements, where they are known."""
        # Sizes seldom change from step to step; where the rows begin costs more than the rows.
        self._layout = _layout(tuple(map(Tensor.numel, tensors) if sizes is None else sizes))
        padded = tensors if self._layout.whole else self._padded(tensors)
        self.values: Tensor = _end_to_end(padded).view(len(self._layout.owner), ROW)

    def _padded(self, tensors: list[Tensor]) -> list[Tensor]:
        zeros = tensors[0].new_zeros(ROW)
        padded: list[Tensor] = []
        for tensor, gap in zip(tensors, self._layout.gaps, strict=True):
            padded += (tensor, zeros[:gap]) if gap else (tensor,)
        return padded

    def norms(self, values: Tensor | None = None) -> Tensor:
        """[tensors] the 2-norm of each, or of what `values`, laid out alike, hold for it."""
        values = self.values if values is None else values
        squares: Tensor = torch.linalg.vector_norm(values, dim=1, dtype=_sum_dtype(values)).square_()
        return squares.new_zeros(len(self._layout.counts)).index_add_(0, self._layout.owner, squares).sqrt_()

    def by_row(self, per_tensor: Tensor) -> Tensor:
        """[rows, 1] the value of its tensor for each row."""
        return per_tensor.index_select(0, self._layout.owner).unsqueeze(1)

    def room(self, kept: dict[Any, Any]) -> Room:
        """Memory for values laid out alike: what `kept` holds from the step before, or what it will hold from now."""
        key = self._layout, *_place(self.values)
        if key not in kept:
            values = torch.empty_like(self.values)
            found = torch.split(values.view(-1), self._layout.lengths)
            kept[key] = Room(values, list(found if self._layout.whole else found[0::2]))
        room: Room = kept[key]
        return room


@dataclass(frozen=True)
class Room:
    """Memory laid out like Rows, and the 1-dim views that belong to the tensors: to make those takes longest."""

    values: Tensor
    pieces: list[Tensor]


def divisor_for(total: Tensor, max_norm: float) -> Tensor | None:
    """max(1, total/max_norm), by which gradients are divided to have at most that norm; None for no change.

    Only the CPU can tell without waiting for the device, so elsewhere it is never None.
    """
    if total.device.type == "cpu" and bool(total <= max_norm):
        return None
    return (total / max_norm).clamp(min=1.0).float()
