"""The same samples in batches of 4, or of 256. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

BATCH = {"naive": 4, "advised": 256}[sys.argv[1]]
STEPS = 20

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(BATCH, 512).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("hpu", dtype=torch.bfloat16):
        loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
