"""Sets of weights with the shapes of known models, and a network of many small layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from perftool.bench.harness.case import Setting

_RESNET_STAGES = ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3))


def resnet50_shapes() -> list[tuple[int, ...]]:
    """The 161 weights of ResNet-50 (25.6 million values)."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    for before, width, blocks in _RESNET_STAGES:
        for block in range(blocks):
            entering = before if block == 0 else 4 * width
            for shape in ((width, entering, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                shapes += [(4 * width, before, 1, 1), (4 * width,), (4 * width,)]
    return [*shapes, (1000, 2048), (1000,)]


def small_shapes(count: int = 2000) -> list[tuple[int, ...]]:
    """Many small weights, 1,088 values on average, as in models of many thin layers."""
    return [(32, 64) if index % 2 else (128,) for index in range(count)]


def parameters(shapes: Sequence[tuple[int, ...]], setting: Setting) -> list[nn.Parameter]:
    """Parameters of ``shapes`` with gradients, the same values for the same seed."""
    generator = setting.generator()

    def values(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(setting.device) * 0.02

    made = []
    for shape in shapes:
        parameter = nn.Parameter(values(shape))
        parameter.grad = values(shape)
        made.append(parameter)
    return made


def layered_network(setting: Setting, layers: int = 40, width: int = 32) -> nn.Module:
    """A network whose step is dominated by its many small weights."""
    torch.manual_seed(setting.seed)
    blocks = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*blocks).to(setting.device)
