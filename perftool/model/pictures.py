"""Data for the pictures of a report, made from the tables and drawn by a reporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LaneSide = Literal["idle", "device", "host", "path"]


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane: one slice, or ``count`` slices of one kind that are too short to show separately, without a
    name."""

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

    ``left_out`` counts the bars that were dropped to keep the picture small. ``lit`` holds stretches of the critical
    path (start and length) by the ``key`` of their lane.
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
    """The whole window of a rank in bins of ``bin_ns``, each divided into shares by kind of device activity.

    The keys of ``shares`` are kinds of device work and, with the prefix ``idle:``, the causes of idle time. The
    shares of a bin add up to 1.
    """

    rank: int
    ts_ns: int
    bin_ns: float
    shares: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class MemoryCurve:
    """Allocated and reserved bytes over time, thinned so that no peak is lost; ``samples`` is the number of samples
    before thinning."""

    rank: int
    device: str
    ts_ns: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int | None, ...]
    samples: int


@dataclass(frozen=True)
class MemorySteps:
    """The memory of a device at the peak of each step: for each kind, the bytes at each of ``steps``. In a long
    recording, each column shows the step with the highest peak of ``per_column`` steps.
    """

    rank: int
    device: str
    steps: tuple[int, ...]
    kinds: Mapping[str, tuple[int, ...]]
    per_column: int


@dataclass(frozen=True)
class RankTimes:
    """One rank in comparison with the others, over its complete steps.

    ``step_ns`` is the median length, ``breakdown_ns`` the mean over the steps, ``busy_ratio`` the share of the window
    in which the device works (None without a device), ``exposed_ns`` the mean exposed communication per step:
    collectives without concurrent compute.
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
    """Times of ranks as shares of a mean step: ``shares`` has a row for each of ``rows``, with a value for each of
    ``columns``. ``note`` says what the times mean.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Pictures:
    """All pictures of a report. The keys of ``timelines`` are indices of findings, from 0; ``path`` shows the critical
    path of a median step."""

    timelines: Mapping[int, Timeline]
    strips: tuple[Strip, ...]
    memory: tuple[MemoryCurve, ...]
    ranks: tuple[RankTimes, ...]
    path: Timeline | None = None
    heat: tuple[HeatMap, ...] = ()
    memory_steps: tuple[MemorySteps, ...] = ()


NO_PICTURES = Pictures({}, (), (), ())
