"""What is drawn into a trace: slices and counters of our own, beside those of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Every event that this program adds to a trace is of this category, so that it is never read as part of the run.
CATEGORY = "habana_perf_tool"


@dataclass(frozen=True)
class Mark:
    """A slice to draw; times in ns as in the trace, ``args`` are shown when it is clicked on."""

    name: str
    ts_ns: int
    dur_ns: int
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Lane:
    """A track of marks that follow or contain each other. They may come from a query, so they can be read once."""

    name: str
    marks: Iterable[Mark]


@dataclass(frozen=True)
class Sample:
    """The values of a counter from ``ts_ns`` on."""

    ts_ns: int
    values: Mapping[str, int]


@dataclass(frozen=True)
class Counter:
    """Values over time; the samples are in order of time and can be read once."""

    name: str
    samples: Iterable[Sample]


@dataclass(frozen=True)
class Annotations:
    """All that is drawn for one rank, under the process ``pid``, a number that the trace does not use.

    ``findings`` of the report are drawn; ``first`` is where the one that comes first is, None without any.
    """

    rank: int
    pid: int
    findings: int
    first: Mark | None
    lanes: tuple[Lane, ...]
    counters: tuple[Counter, ...]
