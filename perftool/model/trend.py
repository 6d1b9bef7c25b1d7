"""A number over many runs: what a line of a summary file says, and what the runs together come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perftool.model.metrics import MetricKind

# Of the lines of a summary file; docs/trend.md documents them.
LINE_VERSION = 1
DEFAULT_METRIC = "step_time_ms"
# In percent, of ratios in points.
DEFAULT_THRESHOLD = 5.0
DEFAULT_LAST, MOST_LAST = 100, 500
# A level rests on so many runs at least, so that one bad night changes nothing; with fewer than twice as many nothing
# is judged.
FEWEST_RUNS = 3
TrendVerdict = Literal["worse", "better", "steady", "changed", "cannot be judged"]


@dataclass(frozen=True)
class RunLine:
    """One line of a summary file: a run, or, where ``rank`` is a number, a rank of one.

    ``time`` is when it was analysed (ISO 8601, UTC), ``name`` that of its inputs, ``metrics`` are numbers of the
    summary by name (None: the input did not show it), ``codes`` those of the findings with advice, the first first,
    ``origin`` says that no device left the inputs behind (simulated, handMade).
    """

    time: str
    name: str
    device: str | None
    world_size: int | None
    metrics: Mapping[str, float | None]
    codes: tuple[str, ...] = ()
    rank: int | None = None
    origin: str = ""


@dataclass(frozen=True)
class History:
    """The lines of a summary file in its order, and how many others it holds that could not be read."""

    lines: tuple[RunLine, ...]
    damaged: int


@dataclass(frozen=True)
class Point:
    """The number in one run."""

    time: str
    name: str
    value: float


@dataclass(frozen=True)
class Level:
    """Runs between two changes: the first and the last of them, their number, and their median.

    ``change`` is the relative change from the level before, None for the first and where that was 0; ``new_codes`` are
    of findings that most of these runs have and most of the runs of the level before have not.
    """

    first: str
    last: str
    runs: int
    median: float
    change: float | None
    new_codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trend:
    """One number over comparable runs, the oldest first.

    ``best`` is the best level before the last, ``worse`` by what share of it the last level is worse, for ratios by how
    many points / 100 (negative when better); both None while there is one level, or where neither direction is better.
    ``left_out`` counts the runs that cannot be compared with the last one, ``absent`` those whose inputs did not show
    the number.
    """

    kind: MetricKind
    device: str | None
    world_size: int | None
    origin: str
    points: tuple[Point, ...]
    levels: tuple[Level, ...]
    verdict: TrendVerdict
    best: Level | None
    worse: float | None
    threshold: float
    left_out: int
    absent: int
    damaged: int

    @property
    def fails(self) -> bool:
        """Whether the number is worse than it was, by more than the threshold."""
        return self.verdict == "worse"
