"""Batches from pageable memory, waited for, or from pinned memory, copied meanwhile. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PINNED = {"naive": False, "advised": True}[sys.argv[1]]
STEPS, BATCH, WIDTH = 30, 1024, 1024

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, 256)).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
examples = TensorDataset(torch.randn(BATCH, WIDTH).repeat(STEPS, 1))
batches = torch.arange(STEPS * BATCH).split(BATCH)
loader = DataLoader(examples, batch_size=None, sampler=batches, pin_memory=PINNED, num_workers=2)

for (batch,) in loader:
    inputs = batch.to(device, non_blocking=PINNED)
    optimizer.zero_grad(set_to_none=True)
    model(inputs).square().mean().backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
