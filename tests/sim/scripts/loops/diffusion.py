"""A small U-Net: three training steps, then sampling with the step number in the graph."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

torch.manual_seed(0)
dev = sys.argv[1]


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 16), nn.SiLU())
        self.a = nn.Conv2d(3, 16, 3, 1, 1)
        self.b = nn.Conv2d(16, 16, 3, 2, 1)
        self.norm = nn.GroupNorm(4, 16)
        self.up = nn.Upsample(scale_factor=2)
        self.c = nn.Conv2d(32, 3, 3, 1, 1)

    def forward(self, x, t):
        freq = torch.exp(torch.arange(8, device=x.device) * -0.5)
        e = t[:, None].float() * freq[None]
        e = self.time(torch.cat([e.sin(), e.cos()], -1))[..., None, None]
        h = self.a(x)
        m = torch.nn.functional.silu(self.norm(self.b(h) + e))
        return self.c(torch.cat([h, self.up(m)], 1))


net = UNet().to(dev)
opt = torch.optim.AdamW(net.parameters(), 1e-3)
betas = torch.linspace(1e-4, 0.02, 50).to(dev)
acp = (1 - betas).cumprod(0)
for _ in range(2):
    x, t, n = torch.randn(2, 3, 8, 8).to(dev), torch.randint(0, 50, (2,)).to(dev), torch.randn(2, 3, 8, 8).to(dev)
    a = acp[t].view(-1, 1, 1, 1)
    loss = (net(a.sqrt() * x + (1 - a).sqrt() * n, t) - n).square().mean()
    loss.backward()
    htcore.mark_step()
    opt.step()
    opt.zero_grad()
    htcore.mark_step()
    print("value", loss.item())
with torch.no_grad():
    x = torch.randn(1, 3, 8, 8).to(dev)
    for i in range(4, 0, -1):
        t = torch.full((1,), i, device=dev)
        e = net(x, t)
        x = (x - betas[i] / (1 - acp[i]).sqrt() * e) / (1 - betas[i]).sqrt()
        htcore.mark_step()
    print("value", x.sum().item())
