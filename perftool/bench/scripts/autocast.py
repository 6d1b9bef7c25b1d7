"""Training with a DeepSpeed configuration, without or with BF16. Written for a Gaudi."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

CONFIG = json.loads((Path(__file__).with_suffix("") / sys.argv[1] / "ds_config.json").read_text())
STEPS = 10

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(768, 768), nn.ReLU()) for _ in range(6))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(CONFIG["train_micro_batch_size_per_gpu"], 768).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("hpu", dtype=torch.bfloat16) if CONFIG["bf16"]["enabled"] else nullcontext():
        loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
