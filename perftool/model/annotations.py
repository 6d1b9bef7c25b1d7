"""Annotations of a trace: slices and counters that this program adds to the recorded events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from perftool.model.report import Location

# The category of all events that this program adds to a trace, so that they are never read as part of the run.
CATEGORY = "habana_perf_tool"
# The metadata key of a file with the timelines of several ranks. The reader rejects such a file as input.
RANKS_KEY = "perftoolRanks"


@dataclass(frozen=True)
class Mark:
    """A slice to draw. Times are in ns, as in the trace. The viewer shows ``args`` when the slice is selected."""

    name: str
    ts_ns: int
    dur_ns: int
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Lane:
    """A track whose marks are disjoint or nested. Each iteration over ``marks`` may run a query."""

    name: str
    marks: Iterable[Mark]


@dataclass(frozen=True)
class Sample:
    """The values of a counter from ``ts_ns`` on."""

    ts_ns: int
    values: Mapping[str, int]


@dataclass(frozen=True)
class Counter:
    """Values over time. Each iteration over ``samples``, which are in time order, runs a query."""

    name: str
    samples: Iterable[Sample]


@dataclass(frozen=True)
class Flow:
    """An arrow between two marks, given by their start times and the indices of their lanes in
    ``Annotations.lanes``."""

    source: int
    source_ts_ns: int
    target: int
    target_ts_ns: int


@dataclass(frozen=True)
class Annotations:
    """All annotations of one rank. ``findings`` is the number of findings drawn.

    They are drawn as the process ``pid``, with one thread per lane, numbered from ``pid + 1``. No process or thread of
    the trace has one of these numbers. ``view`` is the stretch of the trace to show first, and ``select`` the slice to
    select in it: the place of the first finding, or its first example if the finding covers the whole window.
    """

    rank: int
    pid: int
    findings: int
    view: Location
    select: Location | None
    lanes: tuple[Lane, ...]
    counters: tuple[Counter, ...]
    flows: tuple[Flow, ...] = ()


@dataclass(frozen=True)
class RankTimeline:
    """One rank in a timeline of several ranks: its processes in order, its events, and its annotations.

    An event is a row of the table ``raw`` without its rank: ph, cat, name, pid, tid, ts and dur in ns, id, args (JSON).
    The events can be read only once. ``offset_ns`` is added to all times; it is None if the rank's clock is unknown.
    """

    rank: int
    offset_ns: int | None
    processes: tuple[str, ...]
    events: Iterable[tuple[Any, ...]]
    drawn: Annotations
