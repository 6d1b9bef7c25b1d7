"""A model of many small ops in lazy mode, or captured as an HPU graph. Written for a Gaudi."""

import sys

import habana_frameworks.torch as ht
import habana_frameworks.torch.core as htcore
import torch
from torch import nn

FORM = sys.argv[1]
STEPS = 30

torch.manual_seed(0)
device = torch.device("hpu")
layers = (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(40))
model = nn.Sequential(*layers).to(device).eval()
if FORM == "advised":
    model = ht.hpu.wrap_in_hpu_graph(model)
inputs = torch.randn(8, 64).to(device)

with torch.no_grad():
    for step in range(STEPS):
        with torch.profiler.record_function(f"ProfilerStep#{step}"):
            result = model(inputs)
            htcore.mark_step()
print(float(result.sum()))
