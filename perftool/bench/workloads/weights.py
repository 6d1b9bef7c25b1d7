"""Sets of weights with the shapes of known models, and a network of many small layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from perftool.bench.harness.case import Setting

Shape = tuple[int, ...]

_BATCH, _WIDTH = 16, 32
_RESNET_STAGES = ((64, 64, 3), (256, 128, 4), (512, 256, 6), (1024, 512, 3))


def resnet50_shapes() -> list[Shape]:
    """Return the 161 weights of ResNet-50 (25.6 million values)."""
    shapes: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    for before, width, blocks in _RESNET_STAGES:
        for block in range(blocks):
            entering = before if block == 0 else 4 * width
            for shape in ((width, entering, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                shapes += [(4 * width, before, 1, 1), (4 * width,), (4 * width,)]
    return [*shapes, (1000, 2048), (1000,)]


def bert_base_shapes() -> list[Shape]:
    """Return the 199 weights of BERT base (109.5 million values)."""
    hidden, inner = 768, 3072
    shapes: list[Shape] = [(30522, hidden), (512, hidden), (2, hidden), (hidden,), (hidden,)]
    for _ in range(12):
        shapes += [(hidden, hidden), (hidden,)] * 4 + [(hidden,), (hidden,)]
        shapes += [(inner, hidden), (inner,), (hidden, inner), (hidden,), (hidden,), (hidden,)]
    return [*shapes, (hidden, hidden), (hidden,)]


def small_shapes(count: int = 2000) -> list[Shape]:
    """Return the shapes of many small weights, 1,088 values on average, as in models of many thin layers."""
    return [(32, 64) if index % 2 else (128,) for index in range(count)]


def parameters(shapes: Sequence[Shape], setting: Setting) -> list[nn.Parameter]:
    """Create parameters of ``shapes`` with gradients; the same seed creates the same values."""
    generator = setting.generator()

    def values(shape: Shape) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(setting.device) * 0.02

    made = []
    for shape in shapes:
        parameter = nn.Parameter(values(shape))
        parameter.grad = values(shape)
        made.append(parameter)
    return made


def layered_network(setting: Setting, layers: int = 8) -> nn.Module:
    """Return a network whose many small weights dominate its step time."""
    torch.manual_seed(setting.seed)
    blocks = [nn.Sequential(nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*blocks).to(setting.device)


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    setting: Setting,
    before: Callable[[], object] = lambda: None,
) -> Callable[[], object]:
    """Return a whole training step of ``model``; ``before`` is called between backward and the optimizer's step."""
    inputs = torch.randn(_BATCH, _WIDTH, generator=setting.generator()).to(setting.device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        before()
        optimizer.step()

    return step
