"""The work that optimizer benchmarks share: steps over many small or a few large weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from perftool.bench.harness.case import Form, Setting
from perftool.bench.workloads.weights import layered_network, parameters, resnet50_shapes, small_shapes

SIZES = ("small", "large")
_BATCH, _WIDTH = 16, 32

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def optimizer_form(title: str, make: MakeOptimizer, setting: Setting) -> Form:
    """Timed: ``step`` over 2,000 small weights, or those of ResNet-50. Recorded: a training step around it."""
    shapes = small_shapes() if setting.size == "small" else resnet50_shapes()
    weights = parameters(shapes, setting)
    return Form(title, make(weights).step, lambda: weights, _training_step(make, setting))


def _training_step(make: MakeOptimizer, setting: Setting) -> Callable[[], object]:
    model = layered_network(setting)
    optimizer = make(model.parameters())
    inputs = torch.randn(_BATCH, _WIDTH, generator=setting.generator()).to(setting.device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step
