"""Distances computed by an op that the device does not support, or by ops that it supports. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS, POINTS = 10, 1024


def mean_distance(points: torch.Tensor) -> torch.Tensor:
    """Return the mean distance between all pairs of points. A contrastive loss pushes the points apart."""
    if FORM == "naive":
        return torch.pdist(points).mean()
    squares = points.square().sum(1)
    squared = squares.unsqueeze(0) + squares.unsqueeze(1) - 2.0 * points @ points.T
    # This avoids the infinite gradient of the square root at zero.
    pairs = torch.ones_like(squared).triu(1)
    return ((squared * pairs + (1.0 - pairs)).sqrt() * pairs).sum() / pairs.sum()


torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(POINTS, 256).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = -mean_distance(model(inputs))
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
