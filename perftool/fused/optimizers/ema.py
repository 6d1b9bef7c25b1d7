"""Averaged weights: e = d*e + (1-d)*w with d = decay*(1 - exp(-updates/2000)), for each entry of the state_dict."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from perftool.fused.dispatch import choose, native_op, register_everywhere
from perftool.fused.optimizers.tensors import are_ordinary, is_sharded, local_part

register_everywhere("FusedEMA")


class FusedEMA:
    """A moving average of a model's parameters and buffers; integer buffers are copied.

    `ema` is the averaged model, a deep copy in evaluation mode; `updates` is the number of updates.
    """

    def __init__(self, model: nn.Module, decay: float = 0.9999, updates: int = 0) -> None:
        """`model` may be wrapped in (Distributed)DataParallel. Raises ValueError for a negative decay, and
        NotImplementedError for a model that is already sharded."""
        if decay < 0.0:
            raise ValueError(f"Invalid decay value: {decay}")
        self._limit, self.updates = decay, updates
        entry = next(chain(model.parameters(), model.buffers()), torch.empty(0))
        self._native: Any = None
        if choose("FusedEMA", entry.device.type) == "habana":
            self._native = native_op("FusedEMA")(model, decay, updates)
            self.ema: nn.Module = self._native.ema
            return
        parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
        try:
            self.ema = copy.deepcopy(model.module if isinstance(model, parallel) else model)
        except AssertionError as error:  # raised by fully_shard
            text = "A sharded model cannot be copied: make FusedEMA first, then shard the model and `ema` alike."
            raise NotImplementedError(text) from error
        self.ema.eval().requires_grad_(False)

    @property
    def updated_ema(self) -> list[Tensor]:
        """The averages: the tensors in the `state_dict()` of `ema`, in order."""
        return list(self.ema.state_dict().values())

    def decay(self, updates: int) -> float:
        """Return the weight of the old average after `updates`; it grows from 0 to the decay."""
        return self._limit * (1 - math.exp(-updates / 2000))

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with `model`. Entries are matched by position, so a wrapped model also works."""
        if self._native is not None:
            self._native.update(model)
            self.updates = self._native.updates
            return
        self.updates += 1
        _average(_state(self.ema), _state(model), 1 - self.decay(self.updates))

    def update_attr(
        self,
        model: nn.Module,
        include: Iterable[str] = (),
        exclude: Iterable[str] = ("process_group", "reducer"),
    ) -> None:
        """Copy the public attributes of `model`: those in `include` (by default all), except those in `exclude`."""
        wanted, unwanted = set(include), set(exclude)
        for name, value in model.__dict__.items():
            if (not wanted or name in wanted) and not name.startswith("_") and name not in unwanted:
                setattr(self.ema, name, value)


def _state(model: nn.Module) -> list[Tensor]:
    return [entry for entry in model.state_dict(keep_vars=True).values() if isinstance(entry, Tensor)]


def _average(averages: list[Tensor], values: list[Tensor], weight: float) -> None:
    """Move every floating-point average towards its value by the fraction `weight`; copy other values."""
    alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for average, value in zip(averages, values, strict=True):
        if not average.is_floating_point():
            average.copy_(value)
            continue
        if is_sharded(average) and is_sharded(value):
            value, average = local_part(value, average), local_part(average, average)
        if are_ordinary([average, value]):
            moved, followed = alike.setdefault((average.device, average.dtype), ([], []))
            moved.append(average)
            followed.append(value.to(average.device, average.dtype))
        else:
            average.mul_(1 - weight).add_(value, alpha=weight)
    for moved, followed in alike.values():
        torch._foreach_lerp_(moved, followed, weight)
