"""The fields of a batch copied one by one, or packed and copied together. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch import nn

FORM = sys.argv[1]
STEPS, BATCH, FIELDS = 12, 32, 64

torch.manual_seed(0)
device = torch.device("hpu")
model = nn.Sequential(nn.Linear(FIELDS, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
records = [[torch.randn(BATCH) for _ in range(FIELDS)] for _ in range(STEPS)]

for record in records:
    if FORM == "naive":
        inputs = torch.stack([field.to(device) for field in record], dim=1)
    else:
        inputs = torch.stack(record, dim=1).to(device)
    optimizer.zero_grad(set_to_none=True)
    loss = model(inputs).square().mean()
    loss.backward()
    htcore.mark_step()
    optimizer.step()
    htcore.mark_step()
print("result", loss.detach().cpu().item())
