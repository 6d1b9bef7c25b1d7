"""A Python number that changes in every step, or the same number as a tensor. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS = 30

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(128, 128).to(device)
temperatures = [1.0 + 0.1 * step for step in range(STEPS)]

for temperature in temperatures:
    # A number is part of the recipe; the value of a tensor is not.
    scale = temperature if FORM == "naive" else torch.tensor(temperature).to(device)
    optimizer.zero_grad(set_to_none=True)
    (model(inputs) * scale).square().mean().backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
