"""Records returned by the readers of logs, metrics and configuration files.

All durations and times are in integer nanoseconds. ``time_ns`` is relative to 1970, or to local midnight if the line
has no date, by the clock of the process that wrote it. Use it to order the records of one file, but do not compare it
with a trace. Line numbers start at 1. ``rank`` is None if neither the line nor the file states a rank.
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
    """A kernel that an op launched while a device graph was captured. ``op`` is the number of the op call.

    Shapes, types and arguments are JSON from the profiler, or None if it did not record them. Only the first kernel of
    a call has them.
    """

    kernel: str
    op: int
    op_name: str
    input_dims: str | None
    input_types: str | None
    concrete_inputs: str | None


@dataclass(frozen=True, slots=True)
class FallbackRecord:
    """CPU executions of one op, as reported by one source.

    ``origin`` is the source. A ``table`` (printed at exit) and the ``metrics`` file count all executions in a process.
    A ``call`` line is printed for each execution if the log level is high enough. A ``refusal`` line reports an
    argument that the device kernel rejected. A ``graph_cut`` line reports that a lazy graph was flushed because of the
    op. The same execution can appear under several origins, so do not add their counts.

    ``op`` includes the overload (``aten::index.Tensor_out``); ``base`` does not (``aten::index``). ``dtypes`` lists the
    argument types of a call line in order. ``table`` is the index of the table in its file. The ``time_ns`` and ``tid``
    of a table identify the process that printed it.
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
    """``count`` compilations that took ``dur_ns`` in total. Each source counts a compilation only once.

    ``ordinal`` orders the records of one source. It is the number of the metrics snapshot that first shows them, or
    their position in the log. ``step`` is set only if the source counts steps. ``reason`` is ``new shapes``, ``same
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
    """One number in a snapshot of a process's metrics.

    ``total`` is the value since the process started or reset the metric. ``increment`` is its growth since the previous
    snapshot, or None for averages and maxima. Some counters have one value per op or recipe: ``name`` is that op or
    recipe (otherwise None), and a snapshot lists only those whose counter grew.
    """

    key: str
    total: float
    increment: float | None = None
    unit: Literal["count", "ns"] = "count"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MetricSnapshot:
    """One record of a metrics file.

    ``ordinal`` is the index of the snapshot among those of its metric. ``after_reset`` is true if a counter is lower
    than in the previous snapshot. Its increments are then relative to zero.
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

    ``count`` is the number of these lines. ``value``, in ``unit``, is the largest, and ``limit`` comes from the same
    line. ``line`` and ``time_ns`` belong to the first line, and ``last_line`` belongs to the last.
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
    """One setting. The ``key`` of a nested setting contains dots. ``value`` is the text as written in the file."""

    source: ConfigSource
    key: str
    value: str
    rank: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FlightEntry:
    """A call in a rank's flight recorder: the ``number``-th collective of its group, or a send or receive with a
    ``peer``.

    ``state`` is scheduled, started, completed or failed. ``sizes`` contains the input shapes. ``created_ns`` is the
    time of the call by the clock of the rank's host, and ``place`` is the line in the program that made the call.
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
    """A process group as seen by one rank. ``members`` is empty if unknown.

    ``called`` and ``completed`` are the numbers of the last collectives that this rank called and completed: 0 if there
    was no collective, None if batches of sends share the numbering.
    """

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
    """The records of one input, or of several inputs combined, in input order."""

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
        """All ranks that the records refer to, in ascending order."""
        parts = (
            self.fallbacks, self.compilations, self.metrics, self.events, self.config, self.flight_groups, self.nodes,
            self.graph_nodes, self.advice, self.buckets, self.intervals, self.iterations,
        )  # fmt: skip
        records: Iterator[_Ranked] = chain.from_iterable(parts)
        return tuple(sorted({record.rank for record in records if record.rank is not None}))

    @property
    def records(self) -> int:
        """The number of records used. The report shows it as the ``events`` of the input."""
        parts = (
            self.fallbacks, self.compilations, self.metrics, self.events, self.config, self.captured, self.flight,
            self.nodes, self.graph_nodes, self.advice, self.buckets, self.intervals, self.iterations, self.results,
        )  # fmt: skip
        pages = sum(len(page.totals) for page in self.pages)
        return pages + sum(map(len, parts))


def combine(readings: Iterable[LogReading], kind: ReadingKind | None = None) -> LogReading:
    """Concatenate the records of ``readings`` without merging them."""
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
