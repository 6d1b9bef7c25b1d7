"""Training steps on several gloo processes, the model wrapped in DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

_RANKS = 2
# Layers and width of the model: many small weights, or fewer larger ones (2.6 and 26 MB of gradients).
# What is recorded for the rules is small enough to be shared.
SIZES = {"small": (160, 64), "large": (100, 256), "tiny": (600, 8), "recorded": (40, 64)}
_BATCH = 8


def on_ranks(
    name: str,
    rule: str,
    summary: str,
    build: Callable[[FormName, Setting], Form],
    traced_size: str,
    sizes: Sequence[str] = tuple(SIZES),
    quantity: Literal["time", "memory"] = "time",
) -> Benchmark:
    """A benchmark whose forms run on gloo processes that wait for each other, so by the clock on the wall."""
    return Benchmark(
        name=name,
        rules=(rule,),
        summary=summary,
        build=build,
        sizes=tuple(sizes),
        traced_size=traced_size,
        tolerance=1e-5,
        clock="wall",
        quantity=quantity,
        ranks=_RANKS,
        devices=("cpu",),
        reason="this benchmark has two gloo processes on the CPU only",
    )


def layers(setting: Setting) -> nn.Module:
    """Linear layers in sequence, the same on all ranks."""
    count, width = SIZES[setting.size]
    torch.manual_seed(setting.seed)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def step_form(title: str, setting: Setting, **options: Any) -> Form:
    """Forward and backward of ``layers`` under DistributedDataParallel with ``options``; results are the gradients."""
    model = DistributedDataParallel(layers(setting), **options)
    return Form(title, training_step(model, setting), lambda: gradients(model))


def training_step(
    model: nn.Module, setting: Setting, after: Callable[[], object] = lambda: None
) -> Callable[[], object]:
    """What runs forward and backward once, on inputs of this rank, and then ``after``."""
    width = SIZES[setting.size][1]
    generator = torch.Generator().manual_seed(setting.rank)
    inputs = torch.randn(_BATCH, width, generator=generator)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        after()

    return step


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """The gradients of all parameters."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
