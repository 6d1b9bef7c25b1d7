"""Accelerate, with gradients accumulated over two batches."""

import sys

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

AcceleratorState._reset_state(True)
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=sys.argv[1] == "cpu", gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(16, 8), torch.randint(0, 3, (16,))), batch_size=4)
sched = torch.optim.lr_scheduler.LinearLR(opt)
model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
    print("value", accelerator.gather(loss).mean().item())
print("device", accelerator.device, file=sys.stderr)
