"""Whether thousands of tensors are still what they were, from the words of PyTorch's own objects.

Asking each tensor takes a call into PyTorch that waits for memory. The same facts are words at fixed places
in its C++ object: one gather reads them all, and the processor waits for many at a time. Words that are as
they were prove that nothing has moved; words that differ prove nothing, and callers then ask each tensor.

Where the words are is learned from tensors that are changed one property at a time, once per process. There
are no snapshots where that fails, nor of tensors whose properties lie elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORD = 8
INLINE = 5
"""Dimensions up to which PyTorch keeps sizes and strides inside the object."""
HEAD = 22
"""Words of a tensor's object that are looked at; that of torch 2.13 has 23."""
AUTOGRAD_HEAD = 8
"""Words of what autograd adds to a tensor in which its gradient is looked for."""

Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Places:
    """Positions of words: of the C++ object in the Python one, of what is watched there, of the gradient."""

    object: int
    watched: tuple[int, ...]
    autograd: int
    gradient: int


class Snapshot:
    """Words at addresses that lead from objects held here to others: each level is safe if the former holds."""

    def __init__(self, held: Sequence[object], levels: Sequence[Words]) -> None:
        self._held = held
        first = min(int(level.min()) for level in levels)
        last = max(int(level.max()) for level in levels)
        self._memory = _words(first, (last - first) // WORD + 1)
        self._levels = [(level - first) // WORD for level in levels]
        self._kept = [self._memory.take(level) for level in self._levels]

    def holds(self) -> bool:
        """Whether every word is what it was."""
        pairs = zip(self._levels, self._kept, strict=True)
        return all(bool((self._memory.take(level) == kept).all()) for level, kept in pairs)


def of_tensors(tensors: Sequence[Tensor]) -> Snapshot | None:
    """Storage, offset, shape, strides and dtype of each tensor; None where there are no snapshots."""
    places = learned()
    if places is None or not all(map(_is_plain, tensors)):
        return None
    return Snapshot(list(tensors), [_python_side(places, tensors), _watched(places, tensors)])


def of_gradients(params: Sequence[Tensor]) -> Snapshot | None:
    """That each parameter has the gradient it has, and the properties of that."""
    places = learned()
    grads = [param.grad for param in params if param.grad is not None]
    if places is None or len(grads) < len(params) or not all(map(_is_plain, (*params, *grads))):
        return None
    autograd = _objects(params) + places.autograd * WORD
    levels = [_python_side(places, [*params, *grads]), np.append(autograd, _watched(places, grads))]
    return Snapshot([*params, *grads], [*levels, _read(autograd) + places.gradient * WORD])


@functools.cache
def learned() -> Places | None:
    """The places of the words in this process, None if they are not where they could be learned."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    sample = torch.zeros((3,) * INLINE, device="cpu")
    leads = _words(id(sample), torch.Tensor.__basicsize__ // WORD) == sample._cdata
    watched = _changed_by_moving(sample)
    autograd = _words_set_by(sample, lambda: sample.requires_grad_())
    # Sizes and strides, storage, offset, number of dimensions and dtype: one word each.
    if leads.sum() != 1 or len(watched) < 2 * INLINE + 4 or len(autograd) != 1:
        return None
    sample.grad = torch.zeros_like(sample)
    meta = int(_words(sample._cdata, HEAD)[autograd[0]])
    gradient = np.flatnonzero(_words(meta, AUTOGRAD_HEAD) == sample.grad._cdata)
    return Places(int(leads.argmax()), watched, autograd[0], int(gradient[0])) if len(gradient) == 1 else None


def _changed_by_moving(sample: Tensor) -> tuple[int, ...]:
    """The words of the object of `sample` that differ when it is given other data."""
    home = sample.data
    shape, strides = list(home.shape), list(home.stride())
    others = [home.clone(), home.view(torch.int32), home[0], home[..., :-1].as_strided((2,) * INLINE, strides, 1)]
    others += [home.as_strided(shape, [*strides[:i], 0, *strides[i + 1 :]]) for i in range(INLINE)]
    before, changed = _words(sample._cdata, HEAD).copy(), np.zeros(HEAD, dtype=bool)
    for other in others:
        sample.data = other
        changed |= _words(sample._cdata, HEAD) != before
        sample.data = home
    return tuple(map(int, np.flatnonzero(changed)))


def _words_set_by(sample: Tensor, change: Callable[[], object]) -> list[int]:
    empty = _words(sample._cdata, HEAD) == 0
    change()
    return [int(i) for i in np.flatnonzero(empty & (_words(sample._cdata, HEAD) != 0))]


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and tensor.dim() <= INLINE


def _python_side(places: Places, tensors: Sequence[Tensor]) -> Words:
    return _addresses(map(id, tensors)) + places.object * WORD


def _watched(places: Places, tensors: Sequence[Tensor]) -> Words:
    return np.add.outer(_objects(tensors), np.array(places.watched) * WORD).ravel()


def _objects(tensors: Sequence[Tensor]) -> Words:
    return _addresses(tensor._cdata for tensor in tensors)


def _addresses(values: Iterable[int]) -> Words:
    return np.fromiter(values, dtype=np.int64)


def _read(addresses: Words) -> Words:
    return np.array([_words(int(address), 1)[0] for address in addresses])


def _words(address: int, count: int) -> Words:
    """The memory of this process from an address on."""
    return np.frombuffer((ctypes.c_int64 * count).from_address(address), dtype=np.int64)
