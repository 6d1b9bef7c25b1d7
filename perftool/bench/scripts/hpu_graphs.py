"""A model of many small ops in lazy mode, or captured as an HPU graph. Written for a Gaudi."""

import sys

import habana_frameworks.torch as ht
import habana_frameworks.torch.core as htcore
import torch
from torch import nn
from torch.utils.data import DataLoader

FORM = sys.argv[1]
STEPS, PASSES = 14, 4

torch.manual_seed(0)
device = torch.device("hpu")
layers = (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(24))
model = nn.Sequential(*layers).to(device).eval()
if FORM == "advised":
    model = ht.hpu.wrap_in_hpu_graph(model)
loader = DataLoader(torch.randn(STEPS * 8, 64), batch_size=8)

with torch.no_grad():
    for batch in loader:
        state = batch.to(device)
        # Each pass refines the result of the previous pass.
        for _ in range(PASSES):
            state = model(state)
            htcore.mark_step()
print("result", state.cpu().sum().item())
