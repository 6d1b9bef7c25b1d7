"""Attention as matmuls and softmax, which mostly uses the vector engine, or as FusedSDPA. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from torch.utils.data import DataLoader

FORM = sys.argv[1]
STEPS, HEADS, TOKENS, SIZE = 12, 8, 512, 64

torch.manual_seed(0)
device = torch.device("hpu")
key, value = (torch.randn(1, HEADS, TOKENS, SIZE).to(device) for _ in range(2))
loader = DataLoader(torch.randn(STEPS, HEADS, TOKENS, SIZE), batch_size=1)
mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1).to(device)

with torch.no_grad():
    for batch in loader:
        state = batch.to(device)
        for _ in range(4):
            if FORM == "advised":
                state = FusedSDPA.apply(state, key, value, None, 0.0, True)
            else:
                scores = (state @ key.transpose(-1, -2)) * SIZE**-0.5
                state = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ value
        htcore.mark_step()
print("result", state.square().mean().cpu().item())
