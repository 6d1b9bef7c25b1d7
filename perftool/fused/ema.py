"""e = d*e + (1-d)*w with d = decay*(1 - exp(-updates/2000)), over every entry of the state_dict()."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from perftool.fused.bucket import MANY, SMALL_MEAN
from perftool.fused.dispatch import (
    ANY_DEVICE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.flat import FlatTensors, can_all_move, find, home_of, move
from perftool.fused.reference import ema_
from perftool.fused.unchanged import Memory

NATIVE_MODULE = "hpex.movingavrg"

register_native("FusedEMA", NATIVE_MODULE, "FusedEMA")
register(Implementation("FusedEMA", "fast", ANY_DEVICE, always))
register(Implementation("FusedEMA", "reference", ANY_DEVICE, always))


class FusedEMA:
    """A moving average of a model's parameters and buffers; integer buffers are copied.

    `ema` is the averaged model, a deep copy in evaluation mode, `updates` the number of updates so far.
    """

    def __init__(
        self, model: nn.Module, decay: float = 0.9999, updates: int = 0, *, backend: str | None = None
    ) -> None:
        """`model` may be wrapped in (Distributed)DataParallel; ValueError for a negative decay."""
        if decay < 0.0:
            raise ValueError(f"Invalid decay value: {decay}")
        self._limit, self.updates = decay, updates
        entry = next(chain(model.parameters(), model.buffers()), torch.empty(0))
        self._backend = choose("FusedEMA", entry.device.type, backend).name
        self._pairs: _Pairs | None = None
        self._native: Any = None
        if self._backend == "habana":
            self._native = native(NATIVE_MODULE, "FusedEMA")(model, decay, updates)
            self.ema: nn.Module = self._native.ema
            return
        self.ema = copy.deepcopy(_unwrapped(model)).eval()
        self.ema.requires_grad_(False)

    def decay(self, updates: int) -> float:
        """The weight of the average at an update: it grows from 0 towards the given decay."""
        return self._limit * (1 - math.exp(-updates / 2000))

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Average `model` in. Entries are paired by position, so a wrapped model works too."""
        if self._native is not None:
            self._native.update(model)
            self.updates = self._native.updates
            return
        self.updates += 1
        decay = self.decay(self.updates)
        if self._backend == "reference":
            ema_(_state(self.ema), _state(model), decay=decay)
            return
        if self._pairs is None or not self._pairs.are_current(self.ema, model):
            self._pairs = _Pairs(self.ema, model, previous=self._pairs)
        self._pairs.average(1 - decay)

    def update_attr(
        self,
        model: nn.Module,
        include: Iterable[str] = (),
        exclude: Iterable[str] = ("process_group", "reducer"),
    ) -> None:
        """Copy the public attributes of `model`: those in `include`, or all, but never those in `exclude`."""
        wanted, unwanted = set(include), set(exclude)
        for name, value in model.__dict__.items():
            if (not wanted or name in wanted) and not name.startswith("_") and name not in unwanted:
                setattr(self.ema, name, value)


def _unwrapped(model: nn.Module) -> nn.Module:
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    return model.module if isinstance(model, parallel) else model


def _state(model: nn.Module) -> list[Tensor]:
    return [entry for entry in model.state_dict(keep_vars=True).values() if isinstance(entry, Tensor)]


class _Entries:
    """The tensors of a state_dict(), and a cheap way to tell that it would still give the same."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._tables = [
            table for module in model.modules() for table in (module._modules, module._parameters, module._buffers)
        ]
        self._values = list(self._present())
        self.tensors = _state(model)
        self.memory: Memory | None = Memory([tensor.detach() for tensor in self.tensors])
        # A hook may put tensors into the state_dict() that no table holds: then it has to be built each time.
        self._complete = set(map(id, self.tensors)) <= set(map(id, self._values))

    def _present(self) -> Iterable[Any]:
        return chain.from_iterable(table.values() for table in self._tables)

    def are_current(self, model: nn.Module) -> bool:
        """Whether the same modules hold the same tensors, and these the same memory."""
        return (
            self._complete
            and model is self.model
            and sum(map(len, self._tables)) == len(self._values)
            and all(map(is_, self._present(), self._values))
            and self.memory is not None
            and self.memory.holds(self.tensors)
        )


class _Pairs:
    """Averages and the values they follow: as flat buffers, as lists, and as tensors to copy."""

    def __init__(self, ema: nn.Module, model: nn.Module, previous: _Pairs | None) -> None:
        # The buffers of the previous pairs stay alive until these are made: they may be taken over.
        if previous is not None:
            previous.release()
        averages, values = _state(ema), _state(model)
        self.copies: list[tuple[Tensor, Tensor]] = []
        floating: list[tuple[Tensor, Tensor]] = []
        for average, value in zip(averages, values, strict=True):
            (floating if average.is_floating_point() else self.copies).append((average, value))
        laid_out = _flatten_many_small([value for _, value in floating])  # known only while it lives
        self.flat = _flat_pairs(floating)
        settled = {id(home) for _, home in self.flat}
        del laid_out
        self.lists = [pair for pair in floating if id(home_of(pair[1])) not in settled]
        self._entries = _Entries(ema), _Entries(model)

    def release(self) -> None:
        """Let go of the aliases of all tensors, which would keep them from being moved."""
        for entries in self._entries:
            entries.memory = None

    def are_current(self, ema: nn.Module, model: nn.Module) -> bool:
        """Whether both models still hold these tensors."""
        return all(entries.are_current(each) for entries, each in zip(self._entries, (ema, model), strict=True))

    def average(self, weight: float) -> None:
        """Move every average by `weight` of its distance towards the value."""
        for flat, home in self.flat:
            flat.buffer.lerp_(home.buffer, weight)
        if self.lists:
            averages = [average for average, _ in self.lists]
            values = [value.detach().to(average.device, average.dtype) for average, value in self.lists]
            torch._foreach_lerp_(averages, values, weight)
        for average, value in self.copies:
            average.copy_(value)


def _flatten_many_small(values: list[Tensor]) -> FlatTensors | None:
    """Lay many small parameters out in one buffer, unless an optimizer has done so or they cannot move."""
    params = [value for value in values if isinstance(value, nn.Parameter)]
    alike = {(param.dtype, param.device.type) for param in params}
    if len(params) < MANY or len(alike) > 1 or sum(map(Tensor.numel, params)) > SMALL_MEAN * len(params):
        return None
    if params[0].device.type != "cpu" or any(map(home_of, params)) or not can_all_move(params):
        return None
    flat = FlatTensors.copy_of([param.detach() for param in params])
    move(params, flat)
    return flat


def _flat_pairs(pairs: list[tuple[Tensor, Tensor]]) -> list[tuple[FlatTensors, FlatTensors]]:
    """For each flat buffer of which all tensors are among the values, one of averages laid out like it."""
    by_home: dict[FlatTensors, dict[int, tuple[Tensor, Tensor]]] = {}
    for pair in pairs:
        home = home_of(pair[1])
        if home is not None:
            by_home.setdefault(home, {})[pair[1].data_ptr()] = pair
    found = []
    for home, placed in by_home.items():
        ordered = [placed.get(view.data_ptr()) for view in home.views]
        flat = _averages_like(home, [pair for pair in ordered if pair is not None])
        if flat is not None:
            found.append((flat, home))
    return found


def _averages_like(home: FlatTensors, pairs: list[tuple[Tensor, Tensor]]) -> FlatTensors | None:
    averages, values = [average for average, _ in pairs], [value for _, value in pairs]
    if find(values) is not home:
        return None
    flat = find(averages)
    if flat is None and can_all_move(averages) and averages[0].dtype == values[0].dtype:
        flat = FlatTensors.copy_of(averages)
        move(averages, flat)
    return flat if flat is not None and flat.layout == home.layout else None
