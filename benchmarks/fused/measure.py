"""Shared measuring code: contenders take turns, one thread, process CPU time.

Run each benchmark twice: with the heap as glibc sets it up, which is what a user sees, and with
`--tuned-heap`, where large temporaries are not returned to the system, which leaves the effect of the
code alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from perftool.bench.harness.launch import TUNED_HEAP
from perftool.bench.harness.timing import Clock

PROBE_ELEMENTS = 32 * 1024 * 1024


@dataclass(frozen=True)
class Contender:
    """A way to do the work: `run` does it once, after `prepare`, which is not timed."""

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Timing:
    """CPU milliseconds of each round, and page faults of one run."""

    name: str
    rounds: tuple[float, ...]
    faults: int

    @property
    def best(self) -> float:
        """The fastest round."""
        return min(self.rounds)


@dataclass(frozen=True)
class Race:
    """The timings of all contenders of one case, and the bandwidth probe of the same rounds in GB/s."""

    timings: tuple[Timing, ...]
    bandwidth: float

    def of(self, name: str) -> Timing:
        """The timing of a contender."""
        return next(timing for timing in self.timings if timing.name == name)

    def ratio(self, slower: str, faster: str) -> Ratio:
        """How many times longer `slower` takes than `faster`."""
        a, b = self.of(slower), self.of(faster)
        per_round = sorted(x / y for x, y in zip(a.rounds, b.rounds, strict=True))
        trim = len(per_round) // 6
        inner = per_round[trim : len(per_round) - trim]
        median = statistics.median(a.rounds) / statistics.median(b.rounds)
        return Ratio(a.best / b.best, median, inner[0], inner[-1])


@dataclass(frozen=True)
class Ratio:
    """A ratio of minima and of medians, and the spread of single rounds without the outer sixths."""

    of_minima: float
    of_medians: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """`win`, `loss`, or `no win` when the spread covers 1."""
        if self.low <= 1.0 <= self.high:
            return "no win"
        return "win" if self.low > 1.0 else "loss"

    def __str__(self) -> str:
        return f"{self.of_minima:.2f} / {self.of_medians:.2f} ({self.low:.2f}-{self.high:.2f})"


def use_one_thread() -> None:
    """One thread, and re-execute with a tuned heap when `--tuned-heap` is an argument."""
    torch.set_num_threads(1)
    if "--tuned-heap" in sys.argv and not TUNED_HEAP.items() <= os.environ.items():
        # glibc reads these when a process starts.
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **TUNED_HEAP})


def race(contenders: Sequence[Contender], rounds: int, repeat: int = 1) -> Race:
    """Time all contenders once per round, in an order that rotates; `repeat` runs make one timing."""
    probe = torch.zeros(PROBE_ELEMENTS)
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    faults: dict[str, int] = {}
    probes: list[float] = []
    for contender in contenders:
        for _ in range(3):
            contender.prepare()
            contender.run()
    for turn in range(rounds):
        probes.append(_milliseconds(lambda: probe.mul_(1.0), 1))
        for contender in (*contenders[turn % len(contenders) :], *contenders[: turn % len(contenders)]):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times[contender.name].append(_mean(contender, repeat))
            faults[contender.name] = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // repeat
    timings = tuple(Timing(name, tuple(each), faults[name]) for name, each in times.items())
    return Race(timings, PROBE_ELEMENTS * 8 / min(probes) / 1e6)


def _mean(contender: Contender, repeat: int) -> float:
    total = 0.0
    for _ in range(repeat):
        contender.prepare()
        total += _milliseconds(contender.run, 1)
    return total / repeat


def _milliseconds(run: Callable[[], object], repeat: int) -> float:
    return Clock("cpu", torch.device("cpu")).time(run, repeat) * 1e3


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def conditions() -> str:
    """One line on the machine and the heap of this process."""
    heap = "tuned" if "MALLOC_TRIM_THRESHOLD_" in os.environ else "default"
    load = os.getloadavg()[0]
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__}, {capability}, 1 thread, process CPU time, glibc heap {heap}, load {load:.1f}"
