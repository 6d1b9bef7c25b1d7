"""What a benchmark found: measured, simulated, and what the rules said about its two traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BenchmarkStatus = Literal["validated", "simulated", "skipped", "failed"]


@dataclass(frozen=True)
class Ratio:
    """How many times more the naive form takes: the median over rounds, and an interval for it.

    ``confidence`` is the coverage of the interval, 0 to 1; few rounds cannot give 95 %.
    """

    value: float
    low: float
    high: float
    confidence: float

    @property
    def verdict(self) -> Literal["win", "no win", "loss"]:
        """``no win`` when the interval holds 1."""
        if self.low > 1.0:
            return "win"
        return "loss" if self.high < 1.0 else "no win"


@dataclass(frozen=True)
class FormFigures:
    """One form: seconds per run (median), distance of the quartiles relative to it, bytes held at most, page faults."""

    title: str
    seconds: float
    spread: float
    peak_bytes: int | None
    page_faults: int


@dataclass(frozen=True)
class Measurement:
    """Both forms at one size, timed in the same rounds in one state of the heap.

    ``bandwidth`` is that of a pass over memory in the same rounds, in bytes/s. ``max_error`` is the largest difference
    of the results, relative to their largest value.
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

    @property
    def noisy(self) -> bool:
        """Whether the rounds of either form scatter so much that only a large ratio means anything."""
        return max(self.naive.spread, self.advised.spread) > 0.2


@dataclass(frozen=True)
class Proof:
    """What the rules said about the traces of both forms.

    ``gain_estimated`` is the share of the naive step that the finding promised at most; ``gain_measured`` the share
    that the advised step really saved, both in the same traces. Times are medians of steps in ns.
    """

    simulated: bool
    fired_before: tuple[str, ...]
    fired_after: tuple[str, ...]
    naive_step_ns: int | None
    advised_step_ns: int | None
    gain_estimated: float | None

    @property
    def gain_measured(self) -> float | None:
        """Share of the naive step that the advised one saves."""
        if not self.naive_step_ns or self.advised_step_ns is None:
            return None
        return 1.0 - self.advised_step_ns / self.naive_step_ns

    @property
    def ratio(self) -> float | None:
        """How many times longer the naive step is, in the traces."""
        if not self.naive_step_ns or not self.advised_step_ns:
            return None
        return self.naive_step_ns / self.advised_step_ns


@dataclass(frozen=True)
class BenchmarkResult:
    """One row: the first measurement is the one the row stands for."""

    name: str
    rules: tuple[str, ...]
    summary: str
    device: str
    status: BenchmarkStatus
    reason: str | None
    measurements: tuple[Measurement, ...] = ()
    proof: Proof | None = None
