"""A training loop with four problems, each on its own line; `record` reports these lines.

habana_perf_tool record -- python examples/slow_training.py
habana_perf_tool simulate examples/slow_training.py
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, LAYERS, CLASSES, BATCH, STEPS = 64, 24, 8, 8, 8


class Texts(Dataset):
    """Samples that take a while to read."""

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        time.sleep(0.002)  # 1: the training waits for this
        return torch.randn(WIDTH), index % CLASSES


def clean(texts):
    """Plain Python instead of a tensor op."""
    total = 0
    for number in range(150_000):  # 2: the device waits for this
        total += number % 7
    return texts + 0.0 * total


def train(device):
    """Train for a few steps and return the last loss."""
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses = []
    for texts, labels in DataLoader(Texts(), batch_size=BATCH):
        scores = model(clean(texts).to(device))
        loss = nn.functional.cross_entropy(scores, labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # 3: parameter by parameter
        losses.append(loss.item())  # 4: waits for the device
    return losses[-1]


if __name__ == "__main__":
    hpu = hasattr(torch, "hpu") and torch.hpu.is_available()
    train("hpu" if hpu else "cuda" if torch.cuda.is_available() else "cpu")
