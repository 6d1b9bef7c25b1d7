"""e = d*e + (1-d)*w with d = decay*(1 - exp(-updates/2000)), over every entry of the state_dict()."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn

from perftool.fused.dispatch import (
    ANY_DEVICE,
    NATIVE,
    Implementation,
    always,
    choose,
    native,
    register,
    register_native,
)
from perftool.fused.optimizers import native as kernels
from perftool.fused.optimizers.kernels import kernel, obstacle
from perftool.fused.optimizers.memory import is_ordinary
from perftool.fused.optimizers.remembered import RUN
from perftool.fused.optimizers.shards import is_spread, local_part
from perftool.fused.reference import ema_

NATIVE_MODULE = "hpex.movingavrg"

register_native("FusedEMA", NATIVE_MODULE, "FusedEMA")
kernels.register_native_kernels("FusedEMA")
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
        self.ema = _copied(_unwrapped(model)).eval()
        self.ema.requires_grad_(False)

    @property
    def updated_ema(self) -> list[Tensor]:
        """The averages: the tensors of the `state_dict()` of `ema`, in order."""
        return list(self.ema.state_dict().values())

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
            self._pairs = _Pairs(self.ema, model)
        self._pairs.average(1 - decay, self._backend == NATIVE)

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


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except AssertionError as error:  # how fully_shard refuses it
        text = "A sharded model cannot be copied: make FusedEMA first, then shard the model and `ema` alike."
        raise NotImplementedError(text) from error


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
        # A hook may put tensors into the state_dict() that no table holds: then it has to be built each time.
        self._complete = set(map(id, self.tensors)) <= set(map(id, self._values))

    def _present(self) -> Iterable[Any]:
        return chain.from_iterable(table.values() for table in self._tables)

    def are_current(self, model: nn.Module) -> bool:
        """Whether the same modules hold the same tensors."""
        return (
            self._complete
            and model is self.model
            and sum(map(len, self._tables)) == len(self._values)
            and all(map(is_, self._present(), self._values))
        )


class _Pairs:
    """Averages and the values they follow: those averaged in few calls, and the others."""

    def __init__(self, ema: nn.Module, model: nn.Module) -> None:
        self._entries = _Entries(ema), _Entries(model)
        pairs = list(zip(self._entries[0].tensors, self._entries[1].tensors, strict=True))
        listed = [pair for pair in pairs if all(map(_is_listed, pair))]
        self._averages, self._values = [average for average, _ in listed], [value for _, value in listed]
        starts = range(0, len(listed), RUN)
        self._runs = [(self._averages[i : i + RUN], self._values[i : i + RUN]) for i in starts]
        self._others = [pair for pair in pairs if not all(map(_is_listed, pair))]

    def are_current(self, ema: nn.Module, model: nn.Module) -> bool:
        """Whether both models still hold these tensors."""
        return all(entries.are_current(each) for entries, each in zip(self._entries, (ema, model), strict=True))

    def average(self, weight: float, natively: bool) -> None:
        """Move every average by `weight` of its distance towards the value."""
        if not (natively and kernels.lerp(self._averages, self._values, weight)):
            for averages, values in self._runs:
                _lerp(averages, values, weight)
        for average, value in self._others:
            if not average.is_floating_point():
                average.copy_(value)
            elif is_spread(average) and is_spread(value):
                local_part(average, average).lerp_(local_part(value, average), weight)
            else:
                average.mul_(1 - weight).add_(value, alpha=weight)


def _lerp(averages: list[Tensor], values: list[Tensor], weight: float) -> None:
    if weight < 0.5 and _are_laid_alike(averages, values) and _steps_rightly(averages[0].dtype):
        # e + w*(v - e) is a step of SGD with the rate -w and the decay -1, by a kernel that takes half the time.
        options = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}
        kernel("sgd", "fast")(averages, values, [], lr=-weight, weight_decay=-1.0, **options)
        torch.autograd.graph.increment_version(averages)
        return
    places = list(map(_place, averages))
    if list(map(_place, values)) != places:
        values = [value.to(*place) for value, place in zip(values, places, strict=True)]
    torch._foreach_lerp_(averages, values, weight)


_place, _bytes, _is_on_cpu = attrgetter("device", "dtype"), attrgetter("nbytes"), attrgetter("is_cpu")


def _are_laid_alike(averages: list[Tensor], values: list[Tensor]) -> bool:
    """Whether all are in C order on the CPU; equal numbers of bytes keep a kernel within its memory."""
    both = averages + values
    if not all(map(_is_on_cpu, both)) or not all(map(Tensor.is_contiguous, both)):
        return False
    return averages[0].dtype is values[0].dtype and list(map(_bytes, averages)) == list(map(_bytes, values))


def _steps_rightly(dtype: torch.dtype) -> bool:
    return obstacle("sgd", "fast", "cpu", dtype) is None


def _is_listed(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and is_ordinary(tensor)
