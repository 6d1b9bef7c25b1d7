"""Batches copied from pageable memory, or from pinned memory. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

PINNED = {"naive": False, "advised": True}[sys.argv[1]]
STEPS, BATCH, WIDTH, HIDDEN = 14, 1024, 1024, 384

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batches = [torch.randn(BATCH, WIDTH) for _ in range(STEPS)]
if PINNED:
    batches = [batch.pin_memory(device) for batch in batches]

for batch in batches:
    inputs = batch.to(device, non_blocking=True)
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
