"""Optimizer steps over many small weights or the weights of ResNet-50."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from perftool.bench.harness.case import Form, Setting
from perftool.bench.workloads.weights import layered_network, parameters, resnet50_shapes, small_shapes, training_step

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def weights_of(setting: Setting) -> list[nn.Parameter]:
    """Return 2,000 small weights or the weights of ResNet-50, with gradients."""
    return parameters(small_shapes() if setting.size == "small" else resnet50_shapes(), setting)


def optimizer_form(title: str, make: MakeOptimizer, setting: Setting) -> Form:
    """Return a form that times ``step`` with constant gradients, and records a whole training step."""
    weights = weights_of(setting)
    model = layered_network(setting)
    step = training_step(model, make(model.parameters()), setting)
    return Form(title, make(weights).step, lambda: weights, step)
