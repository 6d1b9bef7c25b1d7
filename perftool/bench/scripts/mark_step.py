"""mark_step after every layer, or only after backward and after the optimizer. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS = 12


class Block(nn.Module):
    """A residual layer; the naive form cuts the graph after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Apply the layer and its activation, and add the input."""
        result = values + self.layer(values).relu()
        if FORM == "naive":
            htcore.mark_step()
        return result


torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(Block() for _ in range(24))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(256, 256).to(device)

for _ in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
