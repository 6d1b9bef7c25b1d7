"""Products in 32 bit, or under autocast in BF16. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

LOW_PRECISION = {"naive": False, "advised": True}[sys.argv[1]]
STEPS = 16

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(768, 768), nn.ReLU()) for _ in range(6))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(768, 768).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("hpu", dtype=torch.bfloat16, enabled=LOW_PRECISION):
        loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
