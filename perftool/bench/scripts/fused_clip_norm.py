"""Gradients clipped by torch, or by FusedClipNorm. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.normalization import FusedClipNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS, LIMIT = 10, 1e-3

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(24))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
clip = FusedClipNorm(model.parameters(), LIMIT)
inputs = torch.randn(64, 64).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    if FORM == "naive":
        nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
    else:
        clip.clip_norm(model.parameters())
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
