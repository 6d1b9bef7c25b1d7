"""Records that the readers of logs, metrics and configuration return.

Every duration and time is integer nanoseconds. A time (``time_ns``) counts from local midnight if the line has no date,
else from 1970, by the writer's own clock. Times order the records of one file and must not be compared with a trace.
Lines count from 1. ``rank`` is None if neither the line nor the file names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from perftool.model.devices import DeviceFacts
from perftool.model.inputs import ImportIssue, ReadingKind
from perftool.model.nodes import CompilerAdvice, GraphNode, NodeRun
from perftool.model.serving import Bucket, ClientResult, LoggedIteration, MetricsPage, ServingInterval

FallbackOrigin = Literal["table", "metrics", "call", "refusal", "graph_cut"]
CompilationSource = Literal["metrics", "recipe_cache", "print_stats", "detect_recompilation", "compilation_stats"]
ConfigSource = Literal["banner", "deepspeed", "gaudi_config", "environment", "json", "server"]


@dataclass(frozen=True, slots=True)
class CapturedKernel:
    """A kernel that an op launched during the capture of a device graph, in order; ``op`` numbers the op's call.

    Shapes, types and arguments are the JSON of the profiler's record, None where none is recorded. Only the first
    kernel of a call has them.
    """

    kernel: str
    op: int
    op_name: str
    input_dims: str | None
    input_types: str | None
    concrete_inputs: str | None


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """CPU executions of one op, from one source.

    ``origin`` is the source: a ``table`` printed at exit and the ``metrics`` file count every execution of a process, a
    ``call`` line is printed for each execution at a sufficient log level, a ``refusal`` line reports an argument that
    the device kernel rejected, a ``graph_cut`` line a lazy graph that was flushed for the op. The same execution can
    appear under all origins, so counts of different origins must not be added.

    ``op`` has the overload (``aten::index.Tensor_out``), ``base`` does not (``aten::index``). ``dtypes`` are the
    argument types of a call line, in order. ``table`` numbers the tables of a file from 0. A table's ``time_ns`` and
    ``tid`` identify the process that printed it.
    """

    op: str
    base: str
    count: int
    origin: FallbackOrigin
    rank: int | None = None
    dtypes: tuple[str, ...] = ()
    detail: str = ""
    table: int | None = None
    line: int | None = None
    time_ns: int | None = None
    tid: str | None = None


@dataclass(frozen=True, slots=True)
class CompilationRecord:
    """``count`` compilations that took ``dur_ns`` in total. No compilation is in two records of one source.

    ``ordinal`` orders the records of one source: the number of the metrics snapshot that first shows them,
    else the position in the log. ``step`` is set where the source counts steps. ``reason`` is ``new shapes``, ``same
    shapes`` or None if unknown.
    """

    source: CompilationSource
    count: int = 1
    recipe: str | None = None
    dur_ns: int | None = None
    ordinal: int = 0
    step: int | None = None
    reason: str | None = None
    trigger: str | None = None
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class MetricValue:
    """One number of a snapshot of a process's metrics.

    ``total`` is cumulative since the process started or reset the metric; ``increment`` is its growth since the
    previous snapshot, None for averages and maxima. ``name`` is the op or recipe of a counter that has one value per
    name, else None; a snapshot lists only names whose counter grew.
    """

    key: str
    total: float
    increment: float | None = None
    unit: Literal["count", "ns"] = "count"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MetricSnapshot:
    """One record of a metrics file.

    ``ordinal`` numbers the snapshots of one metric from 0. ``after_reset`` is true if a counter is lower than in the
    previous snapshot; its increments then count from zero.
    """

    metric: str
    ordinal: int
    values: tuple[MetricValue, ...]
    trigger: str | None = None
    time_ns: int | None = None
    after_reset: bool = False
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Log lines with the same kind, subject (``name``) and rank.

    ``count`` is the number of these lines. ``value`` and ``limit`` are the numbers in the last line, in ``unit``;
    ``line`` and ``time_ns`` belong to the first line, ``last_line`` to the last.
    """

    kind: str
    name: str = ""
    count: int = 1
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    rank: int | None = None
    line: int | None = None
    last_line: int | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. ``key`` contains dots if settings are nested; ``value`` is the text in the file."""

    source: ConfigSource
    key: str
    value: str
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """The ``number``-th collective of its group in the flight recorder of a rank; or a send or receive, with ``peer``.

    ``state`` is scheduled, started, completed or failed, ``sizes`` has the shapes of its inputs, ``created_ns`` is the
    time of its call (by that host's clock), and ``place`` the line of the program that made the call.
    """

    rank: int
    group: str
    number: int
    name: str
    state: str
    sizes: str | None
    created_ns: int | None
    place: str | None
    peer: int | None
    pg_id: int | None
    description: str


@dataclass(frozen=True, slots=True)
class FlightGroup:
    """A process group as one rank sees it: its ``members`` (empty if unknown), and the numbers of the last collectives
    that this rank called and completed (0 for none, None where batches of sends also use up numbers)."""

    rank: int
    group: str
    description: str
    members: tuple[int, ...]
    called: int | None
    completed: int | None


_Ranked = (
    FlightEntry | FlightGroup | FallbackRecord | CompilationRecord | MetricSnapshot | LogEvent | ConfigEntry
    | NodeRun | GraphNode | CompilerAdvice | Bucket | ServingInterval | LoggedIteration
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogReading:
    """The records of one input (or several, combined), in the order of the input."""

    fallbacks: tuple[FallbackRecord, ...] = ()
    compilations: tuple[CompilationRecord, ...] = ()
    metrics: tuple[MetricSnapshot, ...] = ()
    events: tuple[LogEvent, ...] = ()
    config: tuple[ConfigEntry, ...] = ()
    captured: tuple[CapturedKernel, ...] = ()
    flight: tuple[FlightEntry, ...] = ()
    flight_groups: tuple[FlightGroup, ...] = ()
    nodes: tuple[NodeRun, ...] = ()
    graph_nodes: tuple[GraphNode, ...] = ()
    advice: tuple[CompilerAdvice, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    intervals: tuple[ServingInterval, ...] = ()
    iterations: tuple[LoggedIteration, ...] = ()
    results: tuple[ClientResult, ...] = ()
    pages: tuple[MetricsPage, ...] = ()
    issues: tuple[ImportIssue, ...] = ()
    kind: ReadingKind | None = None
    device: DeviceFacts | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Every rank that a record names, in ascending order."""
        parts = (
            self.fallbacks, self.compilations, self.metrics, self.events, self.config, self.flight_groups, self.nodes,
            self.graph_nodes, self.advice, self.buckets, self.intervals, self.iterations,
        )  # fmt: skip
        records: Iterator[_Ranked] = chain.from_iterable(parts)
        return tuple(sorted({record.rank for record in records if record.rank is not None}))

    @property
    def records(self) -> int:
        """The number of records used: the ``events`` of an input in the report."""
        parts = (
            self.fallbacks, self.compilations, self.metrics, self.events, self.config, self.captured, self.flight,
            self.nodes, self.graph_nodes, self.advice, self.buckets, self.intervals, self.iterations, self.results,
        )  # fmt: skip
        pages = sum(len(page.totals) for page in self.pages)
        return pages + sum(map(len, parts))


def combine(readings: Iterable[LogReading], kind: ReadingKind | None = None) -> LogReading:
    """The concatenated records of ``readings``, without merging."""
    parts = tuple(readings)
    return LogReading(
        fallbacks=tuple(record for part in parts for record in part.fallbacks),
        compilations=tuple(record for part in parts for record in part.compilations),
        metrics=tuple(record for part in parts for record in part.metrics),
        events=tuple(record for part in parts for record in part.events),
        config=tuple(record for part in parts for record in part.config),
        captured=tuple(record for part in parts for record in part.captured),
        flight=tuple(record for part in parts for record in part.flight),
        flight_groups=tuple(record for part in parts for record in part.flight_groups),
        nodes=tuple(record for part in parts for record in part.nodes),
        graph_nodes=tuple(record for part in parts for record in part.graph_nodes),
        advice=tuple(record for part in parts for record in part.advice),
        buckets=tuple(record for part in parts for record in part.buckets),
        intervals=tuple(record for part in parts for record in part.intervals),
        iterations=tuple(record for part in parts for record in part.iterations),
        results=tuple(record for part in parts for record in part.results),
        pages=tuple(page for part in parts for page in part.pages),
        issues=tuple(issue for part in parts for issue in part.issues),
        kind=kind,
    )
