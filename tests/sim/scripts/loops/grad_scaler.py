"""Half precision with a gradient scaler, and clipping between unscaling and the update."""

import sys

import habana_frameworks.torch.core as htcore
import torch

torch.manual_seed(0)
dev = sys.argv[1]
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Dropout(0.0), torch.nn.Linear(16, 4)
).to(dev)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(device=dev, init_scale=256.0)
for step in range(3):
    x, y = torch.randn(6, 8).to(dev), torch.randint(0, 4, (6,)).to(dev)
    with torch.autocast(device_type=dev, dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    htcore.mark_step()
    print("value", loss.item(), scaler.get_scale())
