"""The same samples one by one, or in one batch."""

from __future__ import annotations

import torch
from torch import nn

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

_SAMPLES = {"small": 16, "large": 32}
_TOKENS, _WIDTH = 32, 128


def build(form: FormName, setting: Setting) -> Form:
    """Forward and backward over all samples, one by one with accumulated gradients, or in one batch."""
    torch.manual_seed(setting.seed)
    samples = _SAMPLES[setting.size]
    model = (_convolutions() if setting.size == "small" else _transformer()).to(setting.device)
    shape = (3, 32, 32) if setting.size == "small" else (_TOKENS, _WIDTH)
    inputs = torch.randn(samples, *shape, generator=setting.generator()).to(setting.device)
    batch = 1 if form == "naive" else samples

    def run() -> None:
        model.zero_grad()
        for part in torch.split(inputs, batch):
            model(part).square().sum().backward()

    def gradients() -> list[torch.Tensor]:
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    return Form(f"batches of {batch}", run, gradients)


def _convolutions() -> nn.Module:
    """Return a convolutional network for images of 32x32 pixels."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GroupNorm(8, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def _transformer() -> nn.Module:
    """Return a transformer with two layers for short sequences."""
    layer = nn.TransformerEncoderLayer(_WIDTH, 4, 4 * _WIDTH, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


BENCHMARK = Benchmark(
    name="batch_size",
    rules=("BAT101",),
    summary="Samples in one batch instead of one by one",
    build=build,
    sizes=tuple(_SAMPLES),
    traced_size="small",
    script="batch_size.py",
    script_work=512.0,
    tolerance=1e-4,
)
