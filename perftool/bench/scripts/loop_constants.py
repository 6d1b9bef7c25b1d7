"""A table of noise levels, read at a changing index, or rotated so that the index is always 0. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS = 24

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(128, 128).to(device)
noise = torch.linspace(1.0, 0.1, STEPS).to(device)

for step in range(STEPS):
    # A recipe contains the index as a constant, so every new index needs another recipe.
    scale = noise[step] if FORM == "naive" else noise[0]
    optimizer.zero_grad(set_to_none=True)
    loss = (model(inputs) * scale).square().mean()
    loss.backward()
    if FORM == "advised":
        noise = torch.roll(noise, shifts=(-1), dims=(0))
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
