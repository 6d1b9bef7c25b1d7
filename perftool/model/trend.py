"""Trends of metrics over many runs: the lines of a summary file, and the levels of a metric over these runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perftool.model.metrics import MetricKind

# The version of the lines of a summary file, which docs/trend.md documents.
LINE_VERSION = 1
# The format of times in these lines, UTC.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
DEFAULT_METRIC = "step_time_ms"
# The threshold is in percent; for ratios, it is in percentage points.
DEFAULT_THRESHOLD = 5.0
DEFAULT_LAST, MOST_LAST = 100, 500
# Every level has at least this many runs, so that one bad run has no effect. A verdict needs at least twice as many.
FEWEST_RUNS = 3
TrendVerdict = Literal["worse", "better", "steady", "changed", "cannot be judged"]


@dataclass(frozen=True)
class RunLine:
    """One line of a summary file: a run or, if ``rank`` is a number, one rank of a run.

    ``time``: the time of the analysis.
    ``recorded``: the time of the recording (ISO 8601, UTC); empty if the trace does not state it.
    ``name``, ``folder``: the names of the inputs and of their folder.
    ``metrics``: the metrics by name. A value is None if the input lacks the metric.
    ``codes``: the codes of the first findings with advice, in report order.
    ``origin``: marks inputs that were not recorded on a device (simulated, handMade).
    ``lost``: the number of inputs of the run that could not be read in full.
    ``steps_from``, ``step_unit``: the signal that separates steps, and the calls that make up a step; empty if
    unknown.
    ``recorded_per_step_ms``: the length of the recording per step, from the rank where it is largest; None if unknown.
    ``warm_up_steps``: the number of warm-up steps, from the rank with the most; None if unknown.
    ``with_warm_up_ms``: like ``recorded_per_step_ms``, but counts the warm-up steps after the start-up.
    ``lost_kernels_ratio``: the share of kernel launches that have no device work in the median step, from the rank
    where it is largest; None if unknown.
    ``iteration_ms``: the mean time of a server's iteration, by phase.
    """

    time: str
    name: str
    device: str | None
    world_size: int | None
    metrics: Mapping[str, float | None]
    codes: tuple[str, ...] = ()
    rank: int | None = None
    origin: str = ""
    recorded: str = ""
    folder: str = ""
    lost: int = 0
    steps_from: str = ""
    step_unit: str = ""
    recorded_per_step_ms: float | None = None
    lost_kernels_ratio: float | None = None
    warm_up_steps: int | None = None
    with_warm_up_ms: float | None = None
    iteration_ms: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def at(self) -> str:
        """The time of the recording if it is known and not after the time of the analysis; otherwise, the time of the
        analysis."""
        return self.recorded if self.recorded and self.recorded <= self.time else self.time

    @property
    def label(self) -> str:
        """The name to show: preferably the folder, because the file names of traces are generated."""
        return self.folder or self.name


@dataclass(frozen=True)
class History:
    """The lines of a summary file in order. ``damaged`` is the number of unreadable lines, and ``intact`` the number of
    ``lines`` after the last of them."""

    lines: tuple[RunLine, ...]
    damaged: int
    intact: int


@dataclass(frozen=True)
class Point:
    """The value of a metric in one run."""

    time: str
    name: str
    value: float


@dataclass(frozen=True)
class Level:
    """The runs between two changes of level: the times of the first and the last run, their number and their median.

    ``change`` is the relative change from the previous level, or None for the first level and after a level of 0.
    ``new_codes`` lists codes that occur in most of these runs, but not in most runs of the previous level.
    """

    first: str
    last: str
    runs: int
    median: float
    change: float | None
    new_codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trend:
    """One metric over comparable runs, oldest first.

    ``best``: the best level before the last level; None if there is only one level, or if neither direction is better.
    ``worse``: how much worse the last level is than ``best``: a relative change, or for ratios a difference. It is
    negative if the last level is better, infinite (null in JSON) for a rise from 0, and None if ``best`` is None.
    ``left_out``: the number of runs that are not comparable with the last run.
    ``incomplete``: the number of comparable runs with inputs that could not be read in full.
    ``absent``: the number of other comparable runs whose inputs lack the metric.
    ``damaged``: the number of unreadable lines.
    ``unjudged``: why the newest run cannot be judged; empty if it can.
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
    unjudged: str = ""
    incomplete: int = 0

    @property
    def fails(self) -> bool:
        """Whether the metric got worse by more than the threshold."""
        return self.verdict == "worse"
