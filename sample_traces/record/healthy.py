"""A classifier in the steady state, with its batches already in memory; no rule should fire."""

from __future__ import annotations

import torch
from recording import record, set_up
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

BATCH = 256


def main() -> None:
    """Record ``cpu/healthy.json.gz``."""
    set_up()
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = TensorDataset(torch.randn(16 * BATCH, 512), torch.randint(10, (16 * BATCH,)))
    # Whole batches are cut from the tensors at once: no collating of single samples.
    batches = BatchSampler(SequentialSampler(data), BATCH, drop_last=True)
    loader = iter(DataLoader(data, sampler=batches, batch_size=None))

    def step(_: int) -> None:
        inputs, labels = next(loader)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    record("healthy", step, steps=5)


if __name__ == "__main__":
    main()
