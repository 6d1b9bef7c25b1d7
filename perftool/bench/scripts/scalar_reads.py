"""The loss is read in every step, or only in every twentieth step. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

STEPS = 24
READ_EVERY = {"naive": 1, "advised": 20}[sys.argv[1]]

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(512, 512).to(device)

for step in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
    if step % READ_EVERY == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print("result", loss.detach().cpu().item())
