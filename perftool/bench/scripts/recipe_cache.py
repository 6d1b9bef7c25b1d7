"""Texts of many lengths, or padded to a few lengths, so that they need few recipes. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS, BATCH, WIDTH, LONGEST, BUCKET = 60, 4, 64, 256, 128

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
lengths = torch.randint(16, LONGEST, (STEPS,)).tolist()

for length in lengths:
    padded = length if FORM == "naive" else -(-length // BUCKET) * BUCKET
    texts = torch.zeros(BATCH, padded, WIDTH)
    texts[:, :length] = torch.randn(BATCH, length, WIDTH)
    valid = (torch.arange(padded) < length).float().unsqueeze(-1)
    inputs, mask = texts.to(device), valid.to(device)
    optimizer.zero_grad(set_to_none=True)
    # The mean ignores the padding.
    loss = ((model(inputs).square() * mask).sum((0, 1)) / mask.sum()).sum()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
