"""torch.compile for the device, and a moving average of the weights."""

import sys

import torch

torch.manual_seed(0)
dev = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(dev)
if dev == "hpu":
    model = torch.compile(model, backend="hpu_backend")
opt = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def ema(avg):
    for a, p in zip(avg, model.parameters()):
        a.lerp_(p, 0.1)


avg = [p.detach().clone() for p in model.parameters()]
for step in range(4):
    x = torch.randn(6, 8).to(dev)
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
    ema(avg)
    print("value", loss.item(), sum(a.sum() for a in avg).item())
