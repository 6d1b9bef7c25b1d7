"""Common members of each pair of groups, counted by a matmul of integers or of floats. Written for a Gaudi."""

import sys

import habana_frameworks.torch.core as htcore
import torch
from torch.utils.data import DataLoader

FORM = sys.argv[1]
STEPS, GROUPS, MEMBERS = 10, 256, 512

torch.manual_seed(0)
device = torch.device("hpu")
loader = DataLoader(torch.rand(STEPS * GROUPS, MEMBERS) < 0.1, batch_size=GROUPS)

with torch.no_grad():
    for batch in loader:
        mask = batch.to(device)
        # 32-bit floats are exact up to 2^24.
        numbers = mask.int() if FORM == "naive" else mask.float()
        shared = torch.mm(numbers, numbers.t()).int()
        most = shared.float().mean()
        htcore.mark_step()
print("result", most.cpu().item())
