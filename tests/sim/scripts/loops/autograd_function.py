"""Autograd functions with their own backward pass, one of them in full precision."""

import sys

import habana_frameworks.torch.core as htcore
import torch

torch.manual_seed(0)
dev = sys.argv[1]


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        y = x * torch.sigmoid(beta * x)
        ctx.save_for_backward(x)
        ctx.beta = beta
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return g * (s + ctx.beta * x * s * (1 - s)), None


class Ste(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="hpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        return x.round()

    @staticmethod
    @torch.amp.custom_bwd(device_type="hpu")
    def backward(ctx, g):
        return g


lin = torch.nn.Linear(6, 6).to(dev)
opt = torch.optim.RMSprop(lin.parameters(), lr=1e-2)
for step in range(3):
    x = torch.randn(5, 6, device=dev) if dev == "cpu" else torch.randn(5, 6).to(dev)
    loss = Ste.apply(Swish.apply(lin(x), 1.5)).pow(2).mean() + lin.weight.norm()
    loss.backward()
    opt.step()
    opt.zero_grad()
    htcore.mark_step()
    print("value", loss.item())
