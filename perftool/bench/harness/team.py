"""Lets processes that measure together agree on the number of runs, because otherwise they could wait for each other
forever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_TIMEOUT = timedelta(seconds=120)


class Team:
    """The processes of one measurement; most measurements have only one process."""

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        self.rank = rank
        self.ranks = ranks

    def agree(self, value: float) -> float:
        """Return rank 0's value on every rank."""
        if self.ranks == 1:
            return value
        shared = torch.tensor([float(value)], dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared)


@contextmanager
def joined(rank: int, ranks: int, meeting: Path) -> Iterator[Team]:
    """Join the process group of ``ranks`` processes that meet in the file ``meeting``."""
    if ranks == 1:
        yield Team()
        return
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=_TIMEOUT)
    yield Team(rank, ranks)
    # No rank may leave while another rank still waits for it.
    dist.barrier()
