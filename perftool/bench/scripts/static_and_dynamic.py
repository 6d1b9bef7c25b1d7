"""A static model and a head whose sequence length changes: in one graph, or separated by mark_step. Written for a
Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn
from torch.utils.data import DataLoader

FORM = sys.argv[1]
STEPS, TOKENS, WIDTH = 24, 256, 128

torch.manual_seed(0)
device = torch.device("hpu")
body = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(24))).to(device).eval()
head = nn.Linear(WIDTH, WIDTH).to(device)
loader = DataLoader(torch.randn(STEPS * TOKENS, WIDTH), batch_size=TOKENS)
lengths = torch.randperm(TOKENS - 1)[:STEPS].tolist()

with torch.no_grad():
    for batch, length in zip(loader, lengths, strict=True):
        states = body(batch.to(device))
        if FORM == "advised":
            htcore.mark_step()
        outputs = head(states[: length + 1])
        htcore.mark_step()
print("result", outputs.square().mean().cpu().item())
