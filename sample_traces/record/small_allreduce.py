"""Two gloo ranks whose gradients are averaged in many tiny buckets (bucket_cap_mb far below the default)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from recording import record, set_up
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


def main() -> None:
    """Record ``cpu/small_allreduce/rank0.json.gz`` and ``rank1.json.gz``."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(Path(folder) / "rendezvous",), nprocs=RANKS)


def train(rank: int, rendezvous: Path) -> None:
    """Train and record one of the ranks, which find each other by the file ``rendezvous``."""
    set_up()
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(16)))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, fused=True)
    inputs = torch.randn(64, 128, generator=torch.Generator().manual_seed(rank))

    def step(_: int) -> None:
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()
        optimizer.step()

    record(f"small_allreduce/rank{rank}", step, steps=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
