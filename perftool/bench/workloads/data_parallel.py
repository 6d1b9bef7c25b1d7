"""Training steps in several gloo processes, with or without DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

_RANKS = 2
# Layers and width of each model. The first three have 2.7, 26 and 0.09 MB of gradients. The model that is recorded for
# the rules has few layers, to keep its trace small.
SIZES = {"small": (160, 64), "large": (100, 256), "tiny": (300, 8), "recorded": (40, 64)}
# 105 MB of gradients, as in ResNet-50, and 210 MB.
_HEAVY = {"hundred": (100, 512), "two hundred": (50, 1024)}
_BATCH = 8


def on_ranks(
    name: str,
    rules: tuple[str, ...],
    summary: str,
    build: Callable[[FormName, Setting], Form],
    traced_size: str,
    sizes: Sequence[str] = tuple(SIZES),
    **fields: Any,
) -> Benchmark:
    """Return a benchmark whose forms run in gloo processes. The processes wait for each other, so wall time is
    measured."""
    return Benchmark(
        name=name,
        rules=rules,
        summary=summary,
        build=build,
        sizes=tuple(sizes),
        traced_size=traced_size,
        clock="wall",
        ranks=_RANKS,
        devices=("cpu",),
        reason="this benchmark runs as two gloo processes, which use the CPU",
        **{"tolerance": 1e-5, **fields},
    )


def _shape(setting: Setting) -> tuple[int, int]:
    return {**SIZES, **_HEAVY}[setting.size]


def layers(setting: Setting) -> nn.Module:
    """Return a sequence of linear layers, which is the same on all ranks."""
    count, width = _shape(setting)
    torch.manual_seed(setting.seed)
    made = [nn.Linear(width, width) for _ in range(count)]
    for layer in made:
        # With torch's own initial values, gradients vanish over a hundred layers, and denormal numbers are slow.
        nn.init.normal_(layer.weight, std=width**-0.5)
    return nn.Sequential(*made)


def step_form(title: str, setting: Setting, **options: Any) -> Form:
    """Forward and backward of ``layers`` under DistributedDataParallel with ``options``; results are the gradients."""
    model = DistributedDataParallel(layers(setting), **options)
    return Form(title, training_step(model, setting), lambda: gradients(model))


def training_step(
    model: nn.Module, setting: Setting, after: Callable[[], object] = lambda: None
) -> Callable[[], object]:
    """Return a function that runs forward and backward once on this rank's inputs, and then calls ``after``."""
    _, width = _shape(setting)
    generator = torch.Generator().manual_seed(setting.rank)
    inputs = torch.randn(_BATCH, width, generator=generator)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        after()

    return step


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """Return the gradients of all parameters."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
