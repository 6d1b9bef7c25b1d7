"""Time and memory against ranks: ``python benchmarks/ranks.py TRACE [--megabytes 60] [--ranks 1 4 16] [--jobs 1 2]``.

TRACE, recorded on one device, is grown and becomes the traces of a run: each rank has its own number, a clock of its
own, and kernels that take a little longer or shorter. One process analyses them first, then several.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grow_trace import grow

_RANK = re.compile(r'("rank": )\d+')
_WORLD = re.compile(r'("world_size": )\d+')
_BASE = re.compile(r'("baseTimeNanoseconds": )(\d+)')
_POLL_S = 0.05


@dataclass(frozen=True)
class Run:
    """One analysis: wall and processor time in s, and the most memory that all its processes held at once, in bytes.

    Both count every process of it. Memory is the proportional set size, which counts pages that processes share once.
    """

    ranks: int
    jobs: int
    wall: float
    cpu: float
    peak: int


def make_ranks(source: Path, folder: Path, megabytes: float, ranks: int) -> int:
    """Write the trace of each of ``ranks`` into ``folder``; returns the bytes of one.

    A rank is the grown trace under a number and with a clock of its own: a few ms apart, as machines are.
    """
    grown = folder / "grown.json"
    size = grow(source, grown, megabytes)
    clocks = random.Random(7)
    for rank in range(ranks):
        write_rank(grown, folder / f"rank{rank}.json", rank, ranks, clocks.randrange(5_000_000))
    grown.unlink()
    return size


def write_rank(grown: Path, target: Path, rank: int, ranks: int, ahead_ns: int) -> None:
    """Copy ``grown`` as the trace of ``rank``, its clock ``ahead_ns`` ahead."""
    with grown.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as written:
        head = ""
        for line in source:
            head += line
            if '"traceEvents"' in line:
                break
        written.write(head_of(head, rank, ranks, ahead_ns))
        while block := source.read(8 << 20):
            written.write(block)


def head_of(head: str, rank: int, ranks: int, ahead_ns: int) -> str:
    """What comes before the events, for another rank."""
    if '"distributedInfo"' not in head:
        head = head.replace("{", f'{{\n  "distributedInfo": {{"rank": {rank}, "world_size": {ranks}}},', 1)
    if '"baseTimeNanoseconds"' not in head:
        head = head.replace("{", '{\n  "baseTimeNanoseconds": 1700000000000000000,', 1)
    head = _BASE.sub(lambda found: f"{found[1]}{int(found[2]) + ahead_ns}", head)
    return _WORLD.sub(rf"\g<1>{ranks}", _RANK.sub(rf"\g<1>{rank}", head))


def measure(folder: Path, ranks: int, jobs: int) -> Run:
    """Analyse the first ``ranks`` of ``folder`` with ``jobs`` processes, in a process group of its own."""
    traces = [str(folder / f"rank{rank}.json") for rank in range(ranks)]
    command = [sys.executable, "-m", "perftool", "analyze", *traces, "--output-format", "json", "--jobs", str(jobs)]
    peaks = [0]
    before, started = cpu_time(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    watch = threading.Thread(target=lambda: peaks.extend(watched(process)))
    watch.start()
    output, _ = process.communicate()
    wall = time.perf_counter() - started
    watch.join()
    require_all(output, ranks)
    return Run(ranks, jobs, wall, cpu_time() - before, max(peaks))


def cpu_time() -> float:
    """Processor time of all processes that were started from here and have ended, in s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def require_all(output: bytes, ranks: int) -> None:
    """Raise ValueError unless the report shows every rank: a fast failure is no result."""
    read = [rank["rank"] for rank in json.loads(output)["ranks"] if rank["status"] == "ok"]
    if read != list(range(ranks)):
        raise ValueError(f"the report shows ranks {read}")


def watched(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """The memory of all processes of a run, again and again until it ends."""
    # Not poll(): whoever reaps the process must be the one that waits for its output.
    while process.returncode is None:
        yield sum(memory_of(pid) for pid in family(process.pid))
        time.sleep(_POLL_S)


def family(pid: int) -> list[int]:
    """A process, and those that it and its children started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def memory_of(pid: int) -> int:
    """The proportional set size of a process in bytes, 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


HEAD = """| ranks | text | jobs | wall s | CPU s | CPU s per rank | peak MiB, all processes |
|--:|--:|--:|--:|--:|--:|--:|"""


def row(run: Run, size: int) -> str:
    """A run over traces of ``size`` bytes as a row of Markdown."""
    text = f"{run.ranks * size / 1e6:,.0f} MB"
    times = f"{run.wall:.0f} | {run.cpu:.1f} | {run.cpu / run.ranks:.2f}"
    return f"| {run.ranks} | {text} | {run.jobs} | {times} | {run.peak / 2**20:,.0f} |"


def main() -> None:
    """Measure as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        size = make_ranks(given.trace, folder, given.megabytes, max(given.ranks))
        print(HEAD, flush=True)
        for ranks in given.ranks:
            for jobs in (jobs for jobs in given.jobs if jobs <= ranks):
                print(row(measure(folder, ranks, jobs), size), flush=True)


if __name__ == "__main__":
    main()
