"""Runs of many ranks with one culprit put in: three steps of loading, launching, computing, and an all-reduce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from events import document, kernel, loader, runtime, step, x

STEP = 100_000
LATE = 40_000


def write_run(folder: Path, ranks: int, culprit: str, who: int, skew: float = 0.0) -> None:
    """A file for each rank in ``folder``; rank ``who`` is slow by ``culprit``: compute, loader, host or none.

    Every other clock is ``skew`` microseconds ahead.
    """
    for rank in range(ranks):
        slow = culprit if rank == who else "none"
        events = [event for number in range(3) for event in _step(number, slow, skew * (rank % 2), rank)]
        info = {"rank": rank, "world_size": ranks}
        (folder / f"rank{rank}.json").write_bytes(document(events, distributedInfo=info))


def _step(number: int, slow: str, clock: float, rank: int) -> list[dict[str, Any]]:
    at = clock + number * STEP
    load = LATE if slow == "loader" else 200
    host = LATE if slow == "host" else 0
    compute = 20_000 + (LATE if slow == "compute" else 0) + 7 * (rank % 3)
    begun = at + 1000 + load + host
    ready = begun + compute + 100
    together = at + 22_314 + LATE
    args = {"Collective name": "allreduce", "Process Group Name": "0", "In msg nelems": 9, "dtype": "Float"}
    return [
        step(number, at, STEP),
        loader(at + 10, load),
        x("aten::mm", at + 300 + load, 300 + host),
        runtime("cudaLaunchKernel", begun - 100, 50, 10 * number + 1),
        runtime("cudaLaunchKernel", begun - 40, 30, 10 * number + 2),
        kernel("gemm", begun, compute, 10 * number + 1),
        kernel("ncclDevKernel_AllReduce", ready, together - ready, 10 * number + 2, stream=9, **args),
        kernel("optimizer", together, at + STEP - together - 500, 10 * number + 2),
    ]
