"""The parameters that one kernel call steps, with their gradients and states, looked up anew at every step.

Kernels always get the tensors that the user sees, so that nobody can write to memory that a model no longer uses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from perftool.fused.optimizers.memory import conform, has_layout, is_dense, is_ordinary
from perftool.fused.optimizers.shards import is_spread, local_part

Group = dict[str, Any]
States = MutableMapping[Any, Any]

PART = 2**18
"""Elements of parameters that are stepped together where a temporary of their size is needed, on a CPU."""
SMALL = 8 * 1024
"""Elements below which the calls for a tensor cost more than copying it."""
LONG_PART = 2**24
"""The same elsewhere, where the number of calls counts."""


@dataclass(frozen=True)
class Batch:
    """Lists of equal length, one entry per parameter, all of one device and dtype.

    Of a DTensor, `params`, `grads` and `states` hold the local part, and `owners` the parameter itself.
    `sizes` are their numbers of elements. `ordinary` is False for tensors that only their own class can compute
    with. `fits` tells whether every gradient has the dtype and memory layout of its parameter, which the fused kernels
    rely on, `spread` whether some are parts of DTensors, and `contiguous` whether all lie in C order, states included.
    `kept` is for what may be used again while the tensors belong together: memory for temporaries, and its views.
    """

    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    owners: list[Tensor]
    sizes: list[int]
    ordinary: bool
    fits: bool
    spread: bool = False
    contiguous: bool = False
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def device_type(self) -> str:
        """`cpu`, `cuda` or another type of device."""
        return self.params[0].device.type

    @property
    def can_be_laid_out(self) -> bool:
        """Whether these are several small whole tensors on a CPU, in C order: copies of them can lie end to end."""
        if len(self.params) < 2 or self.spread or not self.fits or self.device_type != "cpu":
            return False
        return self.contiguous and max(self.sizes) < SMALL

    def some(self, places: slice) -> Batch:
        """The batch of some of the parameters."""
        states = {name: tensors[places] for name, tensors in self.states.items()}
        return replace(
            self,
            params=self.params[places],
            grads=self.grads[places],
            states=states,
            owners=self.owners[places],
            sizes=self.sizes[places],
        )

    def by_size(self) -> list[Batch]:
        """The small tensors, which may be laid out end to end, apart from the large ones, which gain nothing by it."""
        if self.spread or max(self.sizes) < SMALL or min(self.sizes) >= SMALL:
            return [self]
        small = [index for index, size in enumerate(self.sizes) if size < SMALL]
        large = [index for index, size in enumerate(self.sizes) if size >= SMALL]
        return [self._at(small), self._at(large)]

    def _at(self, places: list[int]) -> Batch:
        states = {name: [tensors[i] for i in places] for name, tensors in self.states.items()}
        params, grads, owners = ([each[i] for i in places] for each in (self.params, self.grads, self.owners))
        sizes = [self.sizes[i] for i in places]
        return replace(self, params=params, grads=grads, owners=owners, sizes=sizes, states=states)

    def parts(self) -> Iterator[Batch]:
        """The batch in runs for which a temporary of their size is cheap: one that stays in the cache of a CPU.

        Sharded parameters come in longer runs, because each asks all ranks once.
        """
        limit = LONG_PART if self.device_type != "cpu" or self.spread else PART
        # Of sharded parameters the whole counts: all ranks have to cut at the same places.
        ends = list(accumulate(map(Tensor.numel, self.owners) if self.spread else self.sizes))
        start = 0
        while start < len(ends):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, bisect_right(ends, before + limit))
            yield self.some(slice(start, stop))
            start = stop

    def fitting(self) -> Batch:
        """The same with gradients that fit; copies stand for those that did not."""
        if self.fits or not self.ordinary:
            return self
        return replace(self, grads=list(map(conform, self.grads, self.params)), fits=True)


@dataclass(frozen=True)
class StateRules:
    """What an optimizer keeps per parameter: the names for a group, and a tensor for (name, param, group)."""

    names: Callable[[Group], Sequence[str]]
    create: Callable[[str, Tensor, Group], Tensor]
    sparse_error: str


def batches_of(group: Group, states: States, rules: StateRules) -> list[Batch]:
    """The batches of a group, all tensors looked at; parameters without a gradient take no part and get no state."""
    names = tuple(rules.names(group))
    present = [(param, param.grad) for param in group["params"] if param.grad is not None]
    return list(_batches([_row(param, grad, group, states, rules, names) for param, grad in present], names))


@dataclass(frozen=True)
class _Row:
    """A parameter, as the kernels shall see it, with its gradient, its states and the parameter itself."""

    param: Tensor
    grad: Tensor
    states: list[Tensor]
    owner: Tensor
    ordinary: bool

    @property
    def kind(self) -> tuple[Any, ...]:
        """What rows of one batch have in common."""
        return self.param.device, self.param.dtype, self.ordinary, *(state.dtype for state in self.states)


def _row(param: Tensor, grad: Tensor, group: Group, states: States, rules: StateRules, names: Sequence[str]) -> _Row:
    if not param.is_floating_point():
        raise TypeError(f"fused optimizers step floating-point parameters, not {param.dtype}")
    if grad.is_sparse or grad.is_sparse_csr:
        raise RuntimeError(rules.sparse_error)
    kept = _states(param, group, states, rules, names)
    owner = param
    if is_spread(param):
        kept = [local_part(state, param) if is_spread(state) else state for state in kept]
        grad, param = local_part(grad, param), local_part(param, param)
    ordinary = is_ordinary(param) and is_ordinary(grad) and is_dense(param)
    return _Row(param, grad, kept, owner, ordinary)


def _states(param: Tensor, group: Group, states: States, rules: StateRules, names: Sequence[str]) -> list[Tensor]:
    """The states of a parameter, every tensor in the dtype and memory layout that the kernels need."""
    if not names:
        return []
    entry: dict[str, Any] = states[param]
    for name in names:
        entry[name] = _fitting(entry.get(name), rules, name, param, group)
    return [entry[name] for name in names]


def _fitting(present: Any, rules: StateRules, name: str, param: Tensor, group: Group) -> Tensor:
    if not isinstance(present, Tensor):
        return rules.create(name, param, group)
    wanted = rules.create(name, torch.empty(0, dtype=param.dtype, device=param.device), group)
    # A scale has one shape for all parameters, everything else that of its parameter.
    like = wanted if wanted.numel() else param
    same_place = present.device == param.device and is_spread(present) == is_spread(like)
    same_form = present.dtype == wanted.dtype and present.shape == like.shape and present.stride() == like.stride()
    if same_place and same_form:
        return present
    return rules.create(name, param, group).copy_(present)


def _batches(rows: list[_Row], names: Sequence[str]) -> Iterator[Batch]:
    alike: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        alike.setdefault(row.kind, []).append(row)
    for same in alike.values():
        params, grads = [row.param for row in same], [row.grad for row in same]
        columns = [[row.states[i] for row in same] for i in range(len(names))]
        owners = [row.owner for row in same]
        spread = any(map(is_not, owners, params))
        ordinary = same[0].ordinary
        fits = ordinary and all(map(has_layout, grads, params))
        contiguous = ordinary and all(all(map(Tensor.is_contiguous, each)) for each in (params, grads, *columns))
        sizes, states = list(map(Tensor.numel, params)), dict(zip(names, columns, strict=True))
        yield Batch(params, grads, states, owners, sizes, ordinary, fits, spread, contiguous)
