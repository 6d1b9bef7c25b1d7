"""Training with a Gaudi run configuration, with plain or fused optimizer and clipping. Written for a Gaudi."""

import json
import sys
from pathlib import Path

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.normalization import FusedClipNorm
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

CONFIG = json.loads((Path(__file__).with_suffix("") / sys.argv[1] / "gaudi_config.json").read_text())
STEPS, LIMIT = 10, 1e-3

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(24))).to(device)
parameters = list(model.parameters())
if CONFIG["use_fused_adam"]:
    optimizer = FusedAdamW(parameters, lr=1e-4, eps=1e-8)
else:
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
clip = FusedClipNorm(parameters, LIMIT)
inputs = torch.randn(64, 64).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    if CONFIG["use_fused_clip_norm"]:
        clip.clip_norm(parameters)
    else:
        nn.utils.clip_grad_norm_(parameters, LIMIT)
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
