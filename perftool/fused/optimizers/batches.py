"""The parameters that one kernel call steps, with their gradients and states, looked up anew at every step.

Nothing is kept but which objects belong together. Kernels always get the tensors that the user sees, so that
nobody can write to memory that a model no longer uses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat
from operator import attrgetter, is_, is_not
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from perftool.fused.optimizers import native
from perftool.fused.optimizers.memory import conform, has_layout, is_dense, is_ordinary
from perftool.fused.optimizers.shards import is_spread, local_part

Group = dict[str, Any]
States = MutableMapping[Any, Any]

RUN = 256
"""Tensors that are compared at a time: what one of them needs is then still in the cache for the next question."""

PART = 2**18
"""Elements of parameters that are stepped together where a temporary of their size is needed, on a CPU."""
SMALL = 8 * 1024
"""Elements below which the calls for a tensor cost more than copying it."""
LONG_PART = 2**24
"""The same elsewhere, where the number of calls counts."""

_gradient, _dtype = attrgetter("grad"), attrgetter("dtype")
_ORDINARY = {Tensor, Parameter}


@dataclass(frozen=True)
class Batch:
    """Lists of equal length, one entry per parameter, all of one device and dtype.

    Of a DTensor, `params`, `grads` and `states` hold the local part, and `owners` the parameter itself.
    `sizes` are their numbers of elements. `ordinary` is False for tensors that only their own class can compute
    with. `fits` tells whether every gradient has the dtype and memory layout of its parameter, which the fused kernels
    rely on, `spread` whether some are parts of DTensors, and `contiguous` whether all lie in C order, states included.
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
    """What an optimizer keeps per parameter: the names for a group, and a tensor for (name, param, group).

    `native` tells whether the native kernels may look the gradients up.
    """

    names: Callable[[Group], Sequence[str]]
    create: Callable[[str, Tensor, Group], Tensor]
    sparse_error: str
    native: bool = False


class GroupBatches:
    """The batches of one parameter group; remembers them while parameters and states stay the same objects."""

    def __init__(self) -> None:
        self._regular: _Regular | None = None

    def collect(self, group: Group, states: States, rules: StateRules) -> list[Batch]:
        """The batches of this step. Parameters without a gradient take no part and get no state."""
        names = tuple(rules.names(group))
        if self._regular is not None:
            found = self._regular.gradients(group["params"], states, names, rules.native)
            if found is not None:
                return [self._regular.batch(found)]
        present = [(param, param.grad) for param in group["params"] if param.grad is not None]
        rows = [_row(param, grad, group, states, rules, names) for param, grad in present]
        batches = list(_batches(rows, names))
        self._regular = _Regular.of(batches, states, names)
        return batches


class _Regular:
    """A batch of contiguous tensors that is the whole group: the usual case, compared object by object."""

    def __init__(self, batch: Batch, states: States, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._params, self._tensors = batch.params, batch.states
        self._entries = [states[param] for param in batch.params] if names else []
        self._all_entries = list(states.values())
        self._sizes = batch.sizes
        self._dtype = batch.params[0].dtype
        self._device = batch.params[0].device

    @classmethod
    def of(cls, batches: list[Batch], states: States, names: Sequence[str]) -> _Regular | None:
        """None unless there is one batch, of contiguous tensors in memory of their own."""
        if len(batches) != 1 or not batches[0].ordinary or batches[0].spread:
            return None
        batch = batches[0]
        tensors = [batch.params, *batch.states.values()]
        regular = all(all(map(Tensor.is_contiguous, each)) for each in tensors)
        shaped = all(each.numel() for each in batch.params) and not _has_scales(batch)
        return cls(batch, states, names) if regular and shaped else None

    def gradients(
        self, params: list[Tensor], states: States, names: Sequence[str], natively: bool
    ) -> list[Tensor] | None:
        """The gradients of these parameters, None unless parameters and states are those remembered and all fit."""
        if len(params) != len(self._params):
            params = [param for param in params if param.grad is not None]
        if len(params) != len(self._params) or names != self._names or not self._has_entries(states):
            return None
        if natively:
            same = all(map(is_, params, self._params))
            return native.gradients(params, self._sizes, self._entries, self._tensors) if same else None
        found: list[Tensor] = []
        for start in range(0, len(params), RUN):
            given = self._gradients_of(params, slice(start, start + RUN))
            if given is None:
                return None
            found += given
        return found

    def _has_entries(self, states: States) -> bool:
        return len(states) == len(self._all_entries) and all(map(is_, states.values(), self._all_entries))

    def _gradients_of(self, params: list[Tensor], run: slice) -> list[Tensor] | None:
        present, sizes = params[run], self._sizes[run]
        given = list(map(_gradient, present))
        if not all(map(is_, present, self._params[run])) or not set(map(type, given)) <= _ORDINARY:
            return None
        try:
            contiguous = all(map(Tensor.is_contiguous, given)) and all(map(Tensor.is_contiguous, present))
        except RuntimeError:  # a sparse gradient has no answer to that
            return None
        fits = (
            contiguous
            and list(map(Tensor.numel, given)) == sizes == list(map(Tensor.numel, present))
            and set(map(_dtype, given)) == {self._dtype} == set(map(_dtype, present))
            and given[0].device == self._device == present[0].device
            and self._has_states(run)
        )
        return given if fits else None

    def _has_states(self, run: slice) -> bool:
        entries = self._entries[run]
        return all(
            all(map(is_, map(dict.get, entries, repeat(name)), tensors[run])) for name, tensors in self._tensors.items()
        )

    def batch(self, grads: list[Tensor]) -> Batch:
        """The batch with the gradients of this step."""
        return Batch(
            self._params, grads, self._tensors, self._params, self._sizes, ordinary=True, fits=True, contiguous=True
        )


def _has_scales(batch: Batch) -> bool:
    return any(each[0].shape != batch.params[0].shape for each in batch.states.values())


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
