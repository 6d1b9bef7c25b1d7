"""A moving average of a model's weights, updated tensor by tensor as in training scripts."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn


class PlainEMA:
    """Keeps the moving average of a model in ``ema``. The weight of the old average grows from 0 towards ``decay`` over
    a few thousand updates."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay, self._updates = decay, 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with ``model``."""
        self._updates += 1
        self._average(model, self._decay * (1 - math.exp(-self._updates / 2000)))

    def _average(self, model: nn.Module, decay: float) -> None:
        values = model.state_dict()
        for name, average in self.ema.state_dict().items():
            if average.is_floating_point():
                average.mul_(decay).add_(values[name] * (1 - decay))
            else:
                average.copy_(values[name])


class ListEMA(PlainEMA):
    """PlainEMA with torch's foreach ops, like ``get_ema_multi_avg_fn`` of ``torch.optim.swa_utils``."""

    def _average(self, model: nn.Module, decay: float) -> None:
        averages: list[torch.Tensor] = list(self.ema.parameters())
        values: list[torch.Tensor] = list(model.parameters())
        torch._foreach_lerp_(averages, values, 1 - decay)
