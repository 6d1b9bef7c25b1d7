"""Runs of many ranks with one culprit. In each step, every rank loads, copies, computes and joins all-reduces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from events import document, kernel, loader, memcpy, runtime, step, x

# The time that every rank takes before loading, in the last collective and after it, and the delay of a late rank; all
# in us.
LEAD, WIRE, REST, LATE = 200, 500, 50_000, 40_000
STEPS = 4


@dataclass(frozen=True)
class Work:
    """A rank's work in a step, in microseconds. ``link`` is the duration of its group's all-reduce."""

    load: int = 200
    host: int = 0
    copy: int = 300
    compute: int = 20_000
    link: int = 2_000

    @property
    def until_group(self) -> int:
        return self.load + self.host + self.copy + self.compute


USUAL = Work()
SLOW = {
    "compute": Work(compute=20_000 + LATE),
    "loader": Work(load=200 + LATE),
    "host": Work(host=LATE),
    "copies": Work(copy=300 + LATE),
    "link": Work(link=2_000 + LATE),
}
Slow = Callable[[int, int], Work]
"""Maps the numbers of a rank and a step to the rank's work in that step."""


def one_rank(culprit: str, who: int) -> Slow:
    return lambda rank, _: SLOW[culprit] if rank == who else USUAL


def one_group(culprit: str, who: int, size: int) -> Slow:
    """Slow down all ranks in the group (or host) of ``size`` ranks that includes ``who``."""
    return lambda rank, _: SLOW[culprit] if rank // size == who // size else USUAL


def another_each_step(culprit: str, ranks: int) -> Slow:
    return lambda rank, number: SLOW[culprit] if rank == (3 * number + 1) % ranks else USUAL


def one_step(culprit: str, who: int, bad: int) -> Slow:
    return lambda rank, number: SLOW[culprit] if (rank, number) == (who, bad) else USUAL


def nobody(_rank: int, _number: int) -> Work:
    return USUAL


def write_run(
    folder: Path, ranks: int, slow: Slow, *, per_host: int = 4, skew: float = 0.0, steps: int = STEPS
) -> None:
    """Write the trace of each rank to the folder of its host, for example ``node001/rank5.json``.

    The ranks of a host form a group, whose all-reduce precedes the all-reduce of all ranks. The clock of every second
    rank is ``skew`` us ahead. A step ends REST us after its slowest rank is done, and the host waits for that end.
    """
    lengths = [LEAD + _ready(slow, number, range(ranks)) + WIRE + REST for number in range(steps)]
    begins = list(accumulate(lengths, initial=0))
    for host in range((ranks + per_host - 1) // per_host):
        (folder / f"node{host:03d}").mkdir()
    for rank in range(ranks):
        clock = skew * (rank % 2)
        events = [
            event for number, length in enumerate(lengths)
            for event in _step(rank, number, slow, clock + begins[number], length, range(ranks), per_host)
        ]  # fmt: skip
        name = f"node{rank // per_host:03d}/rank{rank}.json"
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}]
        info = {"rank": rank, "world_size": ranks, "pg_count": 2, "pg_config": groups}
        (folder / name).write_bytes(document(events, distributedInfo=info))


def _jitter(rank: int) -> int:
    """Return a few us of variation, so that neighbouring ranks do not compute for exactly the same time."""
    return 7 * (rank % 3)


def _ready(slow: Slow, number: int, ranks: range) -> int:
    """Return the time at which all of ``ranks`` have finished their groups' all-reduces, in us since loading began."""
    return max(slow(one, number).until_group + _jitter(one) + slow(one, number).link for one in ranks)


def _step(
    rank: int, number: int, slow: Slow, begin: float, length: int, all_ranks: range, size: int
) -> list[dict[str, Any]]:
    at = begin + LEAD
    own = slow(rank, number)
    group = range(rank // size * size, min(rank // size * size + size, len(all_ranks)))
    group_done = max(slow(one, number).until_group + _jitter(one) for one in group) + own.link
    begun = at + own.load + own.host
    computed = begun + own.copy + own.compute + _jitter(rank)
    together = begin + length - REST
    first = 10 * number
    return [
        step(number, begin, length),
        loader(at, own.load),
        x("aten::mm", at + own.load, own.host + 20),
        *(runtime("cudaLaunchKernel", begun - 40 + 5 * call, 4, first + call) for call in range(2, 6)),
        runtime("cudaMemcpyAsync", begun - 60, 10, first + 1),
        runtime("cudaDeviceSynchronize", begun, begin + length - begun),
        memcpy("Memcpy HtoD (Pageable -> Device)", begun, own.copy, first + 1),
        kernel("gemm", begun + own.copy, own.compute + _jitter(rank), first + 2),
        _all_reduce(computed, at + group_done - computed, first + 3, "1", group, 1 << 16),
        _all_reduce(at + group_done, together - at - group_done, first + 4, "0", all_ranks, 1 << 20),
        kernel("optimizer", together, REST - 10, first + 5),
    ]


def _all_reduce(at: float, dur: float, call: int, group: str, ranks: range, elements: int) -> dict[str, Any]:
    args = {"Collective name": "allreduce", "Process Group Name": group, "Process Group Ranks": _listed(ranks),
            "Group size": len(ranks), "In msg nelems": elements, "dtype": "Float"}  # fmt: skip
    return kernel("ncclDevKernel_AllReduce", at, dur, call, stream=9, **args)


def _listed(ranks: range) -> str:
    """Return the ranks of a group in PyTorch's format, which shortens lists of more than thirty."""
    first = ", ".join(map(str, ranks[:29]))
    return str(list(ranks)) if len(ranks) <= 30 else f"[{first}, ..., {ranks[-1]}]"
