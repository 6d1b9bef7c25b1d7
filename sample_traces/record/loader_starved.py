"""Every image is prepared by the training thread itself (num_workers=0) with a costly transform."""

from __future__ import annotations

import time

import torch
from recording import record, set_up
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class SlowImages(Dataset[tuple[Tensor, int]]):
    """Images that take 2 ms each to decode and augment."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(0.002)  # stands for reading and decoding the file
        image = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return (image.flip(2) - image.mean()) / image.std(), index % 10


def main() -> None:
    """Record ``cpu/loader_starved.json.gz``."""
    set_up()
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    loader = iter(DataLoader(SlowImages(), batch_size=16, num_workers=0))

    def step(_: int) -> None:
        images, labels = next(loader)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    record("loader_starved", step)


if __name__ == "__main__":
    main()
