"""The parts of a report that only Gaudi has: engines, recipes, and ops that fell back to the CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """An engine group of a Gaudi, over the window. ``busy_ns`` counts overlapping lanes once, ``lane_ns`` adds them
    up."""

    rank: int
    engine: str
    lanes: int
    ops: int
    busy_ns: int
    busy_ratio: float
    lane_ns: int


@dataclass(frozen=True)
class Recipe:
    """A compiled graph that ran on a Gaudi. Times cover the whole recording and count overlapping lanes once."""

    rank: int
    recipe: int
    name: str | None
    launches: int
    first_step: int | None
    busy_ns: int
    mme_ns: int
    tpc_ns: int
    dma_ns: int


@dataclass(frozen=True)
class Fallback:
    """An op that fell back to the CPU: ``count`` times in the run, ``traced`` times in the trace, where it took
    ``time_ns`` in total (both are None if no trace shows it)."""

    op: str
    dtypes: str | None
    count: int
    traced: int | None
    time_ns: int | None
    source: str

    @property
    def recorded_in(self) -> str:
        """The kinds of input that report the fallback, separated by commas."""
        kinds = {"trace": "trace", "metrics": "metrics file"}
        return ", ".join(dict.fromkeys(kinds.get(one, "log") for one in self.source.split("+")))
