"""Results of a benchmark: measurements, simulations, and the rules that fire on the traces of the two forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perftool.units import quantity

BenchmarkStatus = Literal["validated", "measured", "simulated", "skipped", "failed"]


@dataclass(frozen=True)
class Machine:
    """The machine that ran the benchmarks. ``load`` is the load average over the minute before the start, if known."""

    processor: str
    cores: int
    system: str
    python: str
    torch: str
    load: float | None

    def __str__(self) -> str:
        load = "" if self.load is None else f"; load {self.load:.1f} at the start"
        cores = quantity(self.cores, "core", "cores")
        return f"{self.processor}, {cores}, {self.system}, Python {self.python}, torch {self.torch}{load}"


@dataclass(frozen=True)
class Ratio:
    """The time of the naive form divided by the time of the advised form: the median over rounds, and its confidence
    interval.

    ``confidence`` is the coverage of the interval, from 0 to 1. It stays below 0.95 with only a few rounds, and is 0
    with a single round.
    """

    value: float
    low: float
    high: float
    confidence: float

    @property
    def verdict(self) -> Literal["win", "no win", "loss", "unknown"]:
        """``no win`` if the interval contains 1; ``unknown`` if there was only one round, so there is no interval."""
        if not self.confidence:
            return "unknown"
        if self.low > 1.0:
            return "win"
        return "loss" if self.high < 1.0 else "no win"


@dataclass(frozen=True)
class FormFigures:
    """Measurements of one form of a benchmark, naive or advised: seconds per run (median), relative interquartile
    range, peak memory in bytes, page faults."""

    title: str
    seconds: float
    spread: float
    peak_bytes: int | None
    page_faults: int


@dataclass(frozen=True)
class Measurement:
    """Measurements of both forms at one size, timed in the same rounds with the same ``heap`` settings.

    ``torch`` is the best form that torch itself offers, if any, and ``torch_ratio`` compares the naive form with it.
    ``bandwidth`` is the memory bandwidth measured in the same rounds, in bytes/s. ``max_error`` is the largest
    difference between the results, relative to their largest value.
    """

    size: str
    naive: FormFigures
    advised: FormFigures
    ratio: Ratio
    quantity: Literal["time", "memory"]
    clock: Literal["cpu", "wall"]
    heap: Literal["default", "tuned"]
    threads: int
    rounds: int
    bandwidth: float | None
    max_error: float
    torch: FormFigures | None = None
    torch_ratio: Ratio | None = None

    @property
    def noisy(self) -> bool:
        """Whether the rounds of either form vary so much that only a large ratio is meaningful."""
        return max(self.naive.spread, self.advised.spread) > 0.2


@dataclass(frozen=True)
class Proof:
    """What the rules find in the traces of both forms of a benchmark.

    ``fired_before``, ``fired_after``: the benchmark's rules that fire on the naive form and on the advised form.
    ``newly_fired``: other rules that fire only on the advised form. They give further advice, or point out a cost of
    the advised form.
    ``gain_estimated``: the largest upper bound of the findings, as a share of the naive step; None if there is none.
    ``gain_predicted``: the largest gain predicted by replay, as a share of the naive step; None if there is none.
    ``ratio``: the naive step divided by the advised step, measured without the profiler or from the simulated traces.
    ``interval``: bounds of the measured gain, as shares of the naive step; None if unknown.
    ``max_error``: the difference between the results of the simulated scripts, relative to the naive script's result.
    """

    simulated: bool
    fired_before: tuple[str, ...]
    fired_after: tuple[str, ...]
    gain_estimated: float | None
    ratio: float | None
    max_error: float | None = None
    gain_predicted: float | None = None
    newly_fired: tuple[str, ...] = ()
    interval: tuple[float, float] | None = None

    @property
    def gain(self) -> float | None:
        """The share of the naive step that the advised form saves."""
        return None if not self.ratio else 1.0 - 1.0 / self.ratio


@dataclass(frozen=True)
class BenchmarkResult:
    """The result of one benchmark, with one measurement per size. ``seconds`` is how long the benchmark took."""

    name: str
    rules: tuple[str, ...]
    summary: str
    device: str
    status: BenchmarkStatus
    reason: str | None
    measurements: tuple[Measurement, ...] = ()
    proof: Proof | None = None
    seconds: float | None = None
