"""Times forms alternately, until the ratio is known well enough or the time is used up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from perftool.bench.harness.ratio import ratio_of
from perftool.bench.harness.team import Team
from perftool.model.benchmark import Ratio
from perftool.model.usage import children_seconds, page_faults

# Shorter times are mostly noise from the clock and the caches, so a run is repeated until it takes this long.
_SHORTEST_S = 0.005
_WARM_UP = 2
_FEWEST_ROUNDS = 6
# After _PATIENCE times the requested time, _LEAST_ROUNDS rounds are enough.
_LEAST_ROUNDS, _PATIENCE = 3, 4.0
# Measuring stops once half the width of the interval, relative to the ratio, is at most this.
_GOOD_ENOUGH = 0.03
_PROBE_ELEMENTS = 8 * 1024 * 1024


@dataclass(frozen=True)
class Timed:
    """Seconds per run of one form in each round, and its page faults per run."""

    seconds: tuple[float, ...]
    page_faults: int

    @property
    def median(self) -> float:
        """The median of the rounds, in seconds per run."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The interquartile range relative to the median; 0 for fewer than four rounds."""
        if len(self.seconds) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return (high - low) / self.median


@dataclass(frozen=True)
class Race:
    """Forms timed in the same rounds; ``bandwidth`` is the memory bandwidth during these rounds, in bytes/s.

    ``ratios`` are the first form's time divided by the time of each other form.
    """

    timed: tuple[Timed, ...]
    ratios: tuple[Ratio, ...]
    bandwidth: float


@dataclass(frozen=True)
class Effort:
    """How long to measure: at most ``rounds`` rounds, and no new round after ``seconds`` once six rounds are done.
    After four times ``seconds``, three rounds are enough; the interval of fewer rounds would be useless.
    """

    rounds: int
    seconds: float


def race(runs: Sequence[Callable[[], object]], clock: Clock, effort: Effort, team: Team) -> Race:
    """Time the forms alternately until the ratio of the first two is known to within 3 % or the limits of ``effort``
    are reached."""
    repeats = [round(team.agree(_repeats(run, clock))) for run in runs]
    times: tuple[list[float], ...] = tuple([] for _ in runs)
    faults = [0] * len(runs)
    probe = torch.zeros(_PROBE_ELEMENTS, device=clock.device)
    passes: list[float] = []
    begin = time.monotonic()
    while len(passes) < effort.rounds:
        passes.append(clock.time(lambda: probe.add_(1.0), 1))
        for index in range(len(runs)) if len(passes) % 2 else reversed(range(len(runs))):
            before = page_faults() or 0
            times[index].append(clock.time(runs[index], repeats[index]))
            faults[index] = ((page_faults() or 0) - before) // repeats[index]
        if team.agree(_enough(times, time.monotonic() - begin, effort.seconds)):
            break
    bandwidth = probe.numel() * probe.element_size() * 2 / min(passes)
    timed = tuple(Timed(tuple(each), count) for each, count in zip(times, faults, strict=True))
    return Race(timed, tuple(ratio_of(times[0], each) for each in times[1:]), bandwidth)


def time_alone(run: Callable[[], object], clock: Clock, rounds: int) -> Timed:
    """Time one form alone in this process, including the first run. Page faults are the average over all runs."""
    before = page_faults() or 0
    seconds = tuple(clock.time(run, 1) for _ in range(rounds))
    return Timed(seconds, ((page_faults() or 0) - before) // rounds)


class Clock:
    """Measures the CPU time of this process and its child processes (compilers), or wall time."""

    def __init__(self, kind: str, device: torch.device) -> None:
        self.device = device
        # CPU time does not include a device's work.
        self.kind = kind if device.type == "cpu" else "wall"
        self._now = _cpu_time if self.kind == "cpu" else time.perf_counter

    def time(self, run: Callable[[], object], repeats: int) -> float:
        """Return the mean seconds per run over ``repeats`` runs, including the wait for the device."""
        self.wait()
        begin = self._now()
        for _ in range(repeats):
            run()
        self.wait()
        return (self._now() - begin) / repeats

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()


def _cpu_time() -> float:
    return time.process_time() + (children_seconds() or 0.0)


def _repeats(run: Callable[[], object], clock: Clock) -> int:
    took = min(clock.time(run, 1) for _ in range(_WARM_UP))
    return max(1, round(_SHORTEST_S / max(took, 1e-7)))


def _enough(times: Sequence[Sequence[float]], took: float, wanted: float) -> bool:
    rounds = len(times[0])
    if rounds < _FEWEST_ROUNDS:
        return rounds >= _LEAST_ROUNDS and took >= _PATIENCE * wanted
    if took >= wanted:
        return True
    ratio = ratio_of(times[0], times[1])
    return ratio.high - ratio.low < 2 * _GOOD_ENOUGH * ratio.value
