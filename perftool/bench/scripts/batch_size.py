"""The same samples in batches of 4, or of 2,048. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

BATCH = {"naive": 4, "advised": 2048}[sys.argv[1]]
STEPS = 12

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(6))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(BATCH, 512).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    model(inputs).square().mean().backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
