"""Samples prepared between the steps, or by worker processes during them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting

_BATCH, _SIDE, _WORKERS = 24, 32, 2
_FOR_EVER = 10**6
# The number of batches that each worker may prepare in advance, to bridge periods in which other processes use its
# core.
_AHEAD = 4


@dataclass(frozen=True)
class _Epoch:
    """The number of batches, and the width and height of the images, in pixels, before they are scaled down."""

    batches: int
    side: int


# Preparing a batch takes 25 % of the step time for "small", and 50 % for "large".
_EPOCHS = {"small": _Epoch(6, 320), "large": _Epoch(16, 480)}


class _Images(Dataset[torch.Tensor]):
    """Synthetic images that take time to prepare; the same index always returns the same image."""

    def __init__(self, batches: int, side: int) -> None:
        self._samples, self._side = batches * _BATCH, side

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = torch.rand(1, 3, self._side, self._side, generator=torch.Generator().manual_seed(index))
        small = functional.interpolate(picture, size=(_SIDE, _SIDE), mode="bicubic", antialias=True)
        return functional.normalize(small[0], dim=0)


class _Epochs:
    """A model that is trained an epoch at a time, or step by step on a loader that never ends."""

    def __init__(self, setting: Setting, workers: int) -> None:
        torch.manual_seed(setting.seed)
        self._device = setting.device
        layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
        layers += [layer for _ in range(3) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).to(setting.device)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, fused=True)
        epoch = _EPOCHS[setting.size]
        self._epoch = _loader(_Images(epoch.batches, epoch.side), workers)
        self._endless = _loader(_Images(_FOR_EVER, epoch.side), workers)
        self._batches: Iterator[torch.Tensor] | None = None

    def run(self) -> None:
        for batch in self._epoch:
            self._learn(batch)

    def step(self) -> None:
        if self._batches is None:
            self._batches = iter(self._endless)
        self._learn(next(self._batches))

    def _learn(self, batch: torch.Tensor) -> None:
        self._optimizer.zero_grad()
        self.model(batch.to(self._device)).square().mean().backward()
        self._optimizer.step()

    def weights(self) -> list[torch.Tensor]:
        return list(self.model.parameters())

    def close(self) -> None:
        """Stop the worker processes."""
        self._batches = None


def _loader(images: _Images, workers: int) -> DataLoader[torch.Tensor]:
    if not workers:
        return DataLoader(images, _BATCH)
    return DataLoader(images, _BATCH, num_workers=workers, persistent_workers=True, prefetch_factor=_AHEAD)


def build(form: FormName, setting: Setting) -> Form:
    """Epochs of a small convolutional network; workers start once, and every epoch starts with empty queues."""
    workers = 0 if form == "naive" else _WORKERS
    epochs = _Epochs(setting, workers)
    return Form(f"num_workers={workers}", epochs.run, epochs.weights, epochs.step, epochs.close)


def _obstacle() -> str | None:
    return None if (os.cpu_count() or 1) > 1 else "needs a second processor core"


BENCHMARK = Benchmark(
    name="dataloader_workers",
    rules=("GAP102",),
    summary="Worker processes that prepare samples during the steps instead of between them",
    build=build,
    sizes=tuple(_EPOCHS),
    traced_size="small",
    tolerance=1e-5,
    clock="wall",
    traced_steps=6,
    most_rounds=12,
    unavailable=_obstacle,
)
