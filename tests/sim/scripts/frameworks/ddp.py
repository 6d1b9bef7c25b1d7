"""DistributedDataParallel, and hand-written collectives."""

import os
import sys

import habana_frameworks.torch.core as htcore
import torch
import torch.distributed as dist

dev = sys.argv[1]
alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
dist.init_process_group("hccl" if dev == "hpu" else "gloo", **({} if "RANK" in os.environ else alone))
torch.manual_seed(0)
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(torch.nn.Linear(8, 4).to(dev), bucket_cap_mb=100, gradient_as_bucket_view=True, static_graph=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(6, 8).to(dev) + dist.get_rank()
    loss = model(x).square().mean()
    loss.backward()
    htcore.mark_step()
    opt.step()
    opt.zero_grad()
    htcore.mark_step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    print("value", total.item() / dist.get_world_size())
gathered = [torch.zeros(4).to(dev) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, model.module.bias.detach())
dist.broadcast(model.module.weight.data, 0)
dist.barrier()
print("value", sum(g.sum().item() for g in gathered))
dist.destroy_process_group()
