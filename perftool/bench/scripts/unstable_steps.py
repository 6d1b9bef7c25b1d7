"""Weights saved in every sixth step, or only after the loop. Written for a Gaudi."""

import io
import sys
import time

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS, EVERY = 28, 6

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(4))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(256, 256).to(device)


def save() -> None:
    """Copy all weights to the host and save them."""
    torch.save({name: weight.cpu() for name, weight in model.state_dict().items()}, io.BytesIO())
    # The simulator does not model a disk, so a sleep imitates the write.
    time.sleep(0.005)


for step in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    if FORM == "naive" and step % EVERY == 0:
        save()
    optimizer.step()
    htcore.mark_step()
if FORM == "advised":
    save()
print("result", loss.detach().cpu().item())
