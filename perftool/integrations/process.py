"""Finds the rank of this process, and names its trace."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import torch.distributed

# Set by torchrun, Open MPI and SLURM; Gaudi runs are often started with mpirun.
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def rank_here() -> int | None:
    """Return the rank of this process, or None if no launcher has set it."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    values = (os.environ.get(name, "") for name in _RANK_VARIABLES)
    return next((int(value) for value in values if value.isdecimal()), None)


def new_trace(folder: Path, name: str = "") -> Path:
    """Return a path in ``folder`` that is unique to this process and recording.

    It has the form that TensorBoard expects: ``[name-]<rank or host and process>.<ns>.pt.trace.json.gz``.
    """
    rank = rank_here()
    source = f"rank{rank}" if rank is not None else f"{socket.gethostname()}_{os.getpid()}"
    return folder / f"{f'{name}-' if name else ''}{source}.{time.time_ns()}.pt.trace.json.gz"
