"""Measures how time and memory depend on the number of ranks:
``python benchmarks/ranks.py TRACE [--megabytes 60] [--ranks 1 4 16] [--jobs 1 2]``.

TRACE, recorded on one device, is grown and copied to become the traces of a run in which each rank has its own number
and clock. The run is analysed with each number of processes. ``--report`` writes HTML instead. Without TRACE, the small
ranks of ``tests/engine/culprits.py`` are analysed, written as HTML, and merged from one part per host.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grow_trace import grow

_RANK = re.compile(r'("rank": )\d+')
_WORLD = re.compile(r'("world_size": )\d+')
_BASE = re.compile(r'("baseTimeNanoseconds": )(\d+)')
_POLL_S = 0.05
JSON = ("--output-format", "json")
TESTS = Path(__file__).parents[1] / "tests"


@dataclass(frozen=True)
class Run:
    """One run of ``command``: wall and CPU time in s, the peak memory of all its processes together, and
    the size of its document, in bytes.

    Times and memory count every process. Memory is the proportional set size: pages that processes share count once.
    """

    command: str
    ranks: int
    jobs: int
    wall: float
    cpu: float
    peak: int
    document: int


def make_ranks(source: Path, folder: Path, megabytes: float, ranks: int) -> int:
    """Write a trace for each of ``ranks`` ranks into ``folder``, and return the size of one trace in bytes.

    The ranks' clocks are a few ms apart, like those of different machines.
    """
    grown = folder / "grown.json"
    size = grow(source, grown, megabytes)
    clocks = random.Random(7)
    for rank in range(ranks):
        write_rank(grown, folder / f"rank{rank}.json", rank, ranks, clocks.randrange(5_000_000))
    grown.unlink()
    return size


def write_rank(grown: Path, target: Path, rank: int, ranks: int, ahead_ns: int) -> None:
    """Copy ``grown`` as the trace of ``rank``, whose clock is ``ahead_ns`` ahead."""
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
    """Return the text before the events, changed for ``rank``."""
    if '"distributedInfo"' not in head:
        head = head.replace("{", f'{{\n  "distributedInfo": {{"rank": {rank}, "world_size": {ranks}}},', 1)
    if '"baseTimeNanoseconds"' not in head:
        head = head.replace("{", '{\n  "baseTimeNanoseconds": 1700000000000000000,', 1)
    head = _BASE.sub(lambda found: f"{found[1]}{int(found[2]) + ahead_ns}", head)
    return _WORLD.sub(rf"\g<1>{ranks}", _RANK.sub(rf"\g<1>{rank}", head))


def make_small(folder: Path, ranks: int) -> int:
    """Write a run of small ranks, one of which has a slow loader, into ``folder``. Return the mean trace size in
    bytes."""
    sys.path[:0] = [str(TESTS), str(TESTS / "engine")]
    from culprits import one_rank, write_run

    write_run(folder, ranks, one_rank("loader", ranks // 2 + 3), per_host=8)
    return sum(file.stat().st_size for file in folder.rglob("rank*.json")) // ranks


def make_parts(folder: Path, target: Path) -> None:
    """Write a part for each host (a subfolder of ``folder``) into ``target``."""
    from perftool.engine.analysis import analysed
    from perftool.engine.ranks.part_file import render_part
    from perftool.engine.rules.pack import builtin_folder, load_pack
    from perftool.readers.discover import find_inputs

    rules = load_pack(builtin_folder())
    for host in sorted(folder.iterdir()):
        with analysed(find_inputs([str(host)]), rules) as run:
            (target / f"{host.name}.part").write_bytes(render_part(run.part))


def measure(arguments: Sequence[str], ranks: int, jobs: int = 1) -> Run:
    """Run the program with ``arguments``; the document on its stdout must show all ``ranks`` ranks."""
    peaks = [0]
    before, started = cpu_time(), time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "perftool", *arguments], stdout=subprocess.PIPE)
    watch = threading.Thread(target=lambda: peaks.extend(watched(process)))
    watch.start()
    output, _ = process.communicate()
    wall = time.perf_counter() - started
    watch.join()
    require_all(output, ranks)
    return Run(arguments[0], ranks, jobs, wall, cpu_time() - before, max(peaks), len(output))


def over(folder: Path, ranks: int, jobs: int, report: bool) -> list[str]:
    """Return the arguments to analyse the first ``ranks`` ranks in ``folder`` with ``jobs`` processes."""
    traces = [str(folder / f"rank{rank}.json") for rank in range(ranks)]
    return [*(["report", *traces] if report else ["analyze", *traces, *JSON]), "--jobs", str(jobs)]


def cpu_time() -> float:
    """Return the CPU time of all finished child processes, in s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def require_all(output: bytes, ranks: int) -> None:
    """Raise ValueError unless the document shows every rank, so that a run that failed early does not count."""
    if output.startswith(b"<!doctype html>"):
        if ranks > 1 and f"({ranks} ranks)".encode() not in output:
            raise ValueError(f"the page shows ranks other than {ranks}")
        return
    read = [rank["rank"] for rank in json.loads(output)["ranks"] if rank["status"] == "ok"]
    if read != list(range(ranks)):
        raise ValueError(f"the report shows ranks {read}")


def watched(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """Sample the memory of all processes of a run until it ends."""
    # Do not call poll(), because it would reap the process before communicate() does.
    while process.returncode is None:
        yield sum(memory_of(pid) for pid in family(process.pid))
        time.sleep(_POLL_S)


def family(pid: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def memory_of(pid: int) -> int:
    """Return the proportional set size of a process in bytes, or 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


HEAD = """| command | ranks | text | jobs | wall s | CPU s | CPU s per rank | peak MiB, all processes | document |
|---|--:|--:|--:|--:|--:|--:|--:|--:|"""


def row(run: Run, size: int) -> str:
    """Return a Markdown row for a run on traces of ``size`` bytes each."""
    text = f"{run.ranks * size / 1e6:,.0f} MB"
    times = f"{run.wall:.0f} | {run.cpu:.1f} | {run.cpu / run.ranks:.3f}"
    ends = f"{run.peak / 2**20:,.0f} | {run.document / 1e6:.2f} MB |"
    return f"| {run.command} | {run.ranks:,} | {text} | {run.jobs} | {times} | {ends}"


def main() -> None:
    """Run the measurements that the command line asks for."""
    given = arguments()
    print(HEAD, flush=True)
    for run, size in (large if given.trace else small)(given):
        print(row(run, size), flush=True)


def arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--report", action="store_true")
    return parser.parse_args()


def large(given: argparse.Namespace) -> Iterator[tuple[Run, int]]:
    """Yield a run for each number of ranks and processes, with the size of one rank's trace in bytes."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)
        size = make_ranks(given.trace, folder, given.megabytes, max(given.ranks))
        for ranks in given.ranks:
            for jobs in (jobs for jobs in given.jobs if jobs <= ranks):
                yield measure(over(folder, ranks, jobs, given.report), ranks, jobs), size


def small(given: argparse.Namespace) -> Iterator[tuple[Run, int]]:
    """Yield three runs for each number of ranks, with the mean size of one rank's trace in bytes."""
    for ranks in given.ranks:
        with tempfile.TemporaryDirectory(prefix="ranks-") as name:
            run, parts = Path(name, "run"), Path(name, "parts")
            run.mkdir()
            parts.mkdir()
            size = make_small(run, ranks)
            yield measure(["analyze", str(run), *JSON], ranks), size
            yield measure(["report", str(run)], ranks), size
            make_parts(run, parts)
            yield measure(["merge", str(parts), *JSON], ranks), size


if __name__ == "__main__":
    main()
