"""The loss of masked and unmasked positions, by boolean indexing or by multiplication with a mask. Written for a
Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from habana_frameworks.torch.hpex.optimizers import FusedAdamW
from torch import nn

FORM = sys.argv[1]
STEPS, ROWS, WIDTH, MASKED = 12, 512, 512, 128

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4))).to(device)
optimizer = FusedAdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(ROWS, WIDTH).to(device)
# Every step masks the same number of positions, so that no shape changes.
masks = [(torch.randperm(ROWS) < MASKED).to(device) for _ in range(STEPS)]


def mean_of(errors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return errors[torch.where(mask)].mean() if FORM == "naive" else (errors * mask).sum() / mask.sum()


for mask in masks:
    optimizer.zero_grad(set_to_none=True)
    errors = (model(inputs) - inputs).square().mean(1)
    loss = mean_of(errors, mask) + 0.1 * mean_of(errors, ~mask)
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
