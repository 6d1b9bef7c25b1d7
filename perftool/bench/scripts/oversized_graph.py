"""A step as one graph, or cut into several so that the device can start earlier. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS = 10


class Block(nn.Module):
    """Two layers; the advised form cuts the graph after them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Apply the layers; the advised form also cuts the graph, so that the device can start."""
        result = self.layers(values)
        if FORM == "advised":
            htcore.mark_step()
        return result


torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(Block() for _ in range(4))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(512, 512).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    if FORM == "advised":
        htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
    # This imitates a learning-rate schedule that reads the loss.
    value = loss.item()
print("result", value)
