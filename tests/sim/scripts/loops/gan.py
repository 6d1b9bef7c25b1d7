"""Two adversarial networks, each with its optimizer."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

torch.manual_seed(0)
dev = sys.argv[1]
G = nn.Sequential(
    nn.ConvTranspose2d(8, 8, 4, 1, 0), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh()
).to(dev)
D = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4, 1, 0), nn.Flatten()).to(dev)
og, od = (
    torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999)),
    torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999)),
)
bce = nn.BCEWithLogitsLoss()
for step in range(3):
    real, noise = torch.randn(4, 1, 8, 8).to(dev), torch.randn(4, 8, 1, 1).to(dev)
    ones, zeros = torch.ones(4, 1, device=dev), torch.zeros(4, 1, device=dev)
    fake = G(noise)
    od.zero_grad()
    ld = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    ld.backward()
    htcore.mark_step()
    od.step()
    htcore.mark_step()
    og.zero_grad()
    lg = bce(D(fake), ones)
    lg.backward()
    htcore.mark_step()
    og.step()
    htcore.mark_step()
    print("value", ld.item(), lg.item())
