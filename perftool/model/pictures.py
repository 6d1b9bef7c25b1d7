"""Data for the charts of a report, built from the tables and drawn by a reporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LaneSide = Literal["idle", "device", "host", "path"]


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane: one slice, or ``count`` slices of the same kind that are too short to show separately. A bar
    of several slices has no name."""

    ts_ns: int
    dur_ns: int
    kind: str
    row: int
    name: str | None
    count: int = 1


@dataclass(frozen=True)
class Lane:
    """A host thread, a device lane (on Gaudi: all lanes of an engine), or the causes of idle time, clipped to a view.

    ``key`` is the lane's track (tracks.id) or engine.
    """

    name: str
    side: LaneSide
    rows: int
    bars: tuple[Bar, ...]
    key: str = ""


@dataclass(frozen=True)
class Timeline:
    """The timeline around a finding: the visible stretch, the marked stretch inside it, and the lanes.

    ``left_out`` is the number of bars dropped to keep the chart small. ``lit`` maps the ``key`` of a lane to its
    stretches on the critical path (start and length).
    """

    rank: int
    ts_ns: int
    dur_ns: int
    mark_ts_ns: int
    mark_dur_ns: int
    mark_name: str | None
    step: str | None
    lanes: tuple[Lane, ...]
    left_out: int = 0
    lit: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Strip:
    """The whole window of a rank in bins of ``bin_ns``, with the shares of each kind of device activity in each bin.

    The keys of ``shares`` are kinds of device work and, with the prefix ``idle:``, causes of idle time.
    """

    rank: int
    ts_ns: int
    bin_ns: float
    shares: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class MemoryCurve:
    """Allocated and reserved bytes over time, thinned out without losing a peak. ``samples`` is the original number of
    samples."""

    rank: int
    device: str
    ts_ns: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int | None, ...]
    samples: int


@dataclass(frozen=True)
class MemorySteps:
    """The memory of a device at the peak of each step. ``kinds`` maps each kind of memory to its bytes in each of
    ``steps``. In a long recording, only the step with the highest peak in each group of ``per_column`` steps is shown.
    """

    rank: int
    device: str
    steps: tuple[int, ...]
    kinds: Mapping[str, tuple[int, ...]]
    per_column: int


@dataclass(frozen=True)
class RankTimes:
    """One rank, for comparison with the others. Times cover its complete steps.

    ``step_ns`` is the median step, and ``breakdown_ns`` is the mean over the steps. ``busy_ratio`` is the share of the
    window in which the device is busy (None if there is no device). ``exposed_ns`` is the mean exposed communication
    per step.
    """

    rank: int
    steps: int
    step_ns: int
    breakdown_ns: Mapping[str, int]
    busy_ratio: float | None
    exposed_ns: int
    peak_bytes: int | None


@dataclass(frozen=True)
class HeatMap:
    """Times of ranks as shares of a mean step. ``shares`` has one row per entry of ``rows``, with one value per entry
    of ``columns``. ``note`` says what the times mean.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Pictures:
    """All charts of a report. The keys of ``timelines`` are indices of findings. ``path`` shows the critical path of a
    step of median length."""

    timelines: Mapping[int, Timeline]
    strips: tuple[Strip, ...]
    memory: tuple[MemoryCurve, ...]
    ranks: tuple[RankTimes, ...]
    path: Timeline | None = None
    heat: tuple[HeatMap, ...] = ()
    memory_steps: tuple[MemorySteps, ...] = ()


NO_PICTURES = Pictures({}, (), (), ())
