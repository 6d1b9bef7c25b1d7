"""Pinned batches copied after the loss is read, or earlier, while the device works. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

AHEAD = {"naive": False, "advised": True}[sys.argv[1]]
STEPS, BATCH, WIDTH, HIDDEN = 14, 1024, 1024, 384

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batches = [torch.randn(BATCH, WIDTH).pin_memory(device) for _ in range(STEPS)]

upcoming = batches[0].to(device, non_blocking=True)
for step in range(STEPS):
    inputs = upcoming if AHEAD else batches[step].to(device, non_blocking=True)
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
    if AHEAD and step + 1 < STEPS:
        # The device is still working on this step.
        upcoming = batches[step + 1].to(device, non_blocking=True)
    value = loss.item()
print("result", value)
