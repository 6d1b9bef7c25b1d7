"""Converts the cumulative records of a metrics file into snapshots, fallbacks and compilations.

Every record contains totals since the process started. If a counter decreases, it was reset to zero between two
records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from perftool.model.records import (
    CompilationRecord,
    FallbackRecord,
    LogReading,
    MetricSnapshot,
    MetricValue,
)
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_values import number
from perftool.readers.text.log_time import parse_time
from perftool.readers.text.op_names import op_name


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record from the file, with unchecked values in ``statistics``."""

    metric: str
    trigger: str | None
    generated_on: str | None
    statistics: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Key:
    """The format of a key. ``scale`` converts times to nanoseconds. A gauge does not accumulate."""

    unit: Literal["count", "ns"] = "count"
    scale: int = 1
    gauge: bool = False


_US, _MS = 1_000, 1_000_000
_KEYS = {
    ("graph_compilation", "TotalTime"): _Key("ns", _US),
    ("graph_compilation", "AvgTime"): _Key("ns", _US, gauge=True),
    ("memory_defragmentation", "AvgTime"): _Key("ns", _MS, gauge=True),
    ("memory_defragmentation", "MaxTime"): _Key("ns", _MS, gauge=True),
}
_COUNT = _Key()
_RECIPES = "recipe"  # a list, which the bridge never empties
_LIMIT = 2**63


@dataclass
class _Metric:
    """The state of one metric after the latest record."""

    snapshots: int = 0
    totals: dict[tuple[str, str | None], float] = field(default_factory=dict)
    recipes: int = 0


@dataclass
class MetricsSeries:
    """Collects snapshots from the records of a file, fed in order."""

    tally: IssueTally
    rank: int | None = None
    _metrics: dict[str, _Metric] = field(default_factory=dict)
    _snapshots: list[MetricSnapshot] = field(default_factory=list)
    _compilations: list[CompilationRecord] = field(default_factory=list)
    _fallbacks: dict[str, int] = field(default_factory=dict)

    def feed(self, record: RawRecord) -> None:
        """Add a snapshot with the totals in ``record`` and their increments, and count its fallbacks and
        compilations."""
        state = self._metrics.setdefault(record.metric, _Metric())
        totals = dict(self._numbers(record))
        counters = {place: total for place, total in totals.items() if not _key(record.metric, place[0]).gauge}
        reset = any(total < state.totals.get(place, 0) for place, total in counters.items())
        before = {} if reset else state.totals
        snapshot = MetricSnapshot(
            metric=record.metric,
            ordinal=state.snapshots,
            values=tuple(_values(record.metric, totals, before)),
            trigger=record.trigger,
            time_ns=parse_time(record.generated_on or ""),
            after_reset=reset,
            rank=self.rank,
        )
        state.snapshots += 1
        state.totals = counters
        self._snapshots.append(snapshot)
        self._count_fallbacks(snapshot)
        if record.metric == "cpu_fallback":
            self._check_fallbacks(record)
        if record.metric == "graph_compilation":
            self._count_compilations(snapshot, self._new_recipes(record, state))

    def reading(self) -> LogReading:
        """Return all snapshots, the compilations that they report, and one fallback record per op with its total."""
        fallbacks = tuple(
            FallbackRecord(op_name(op).full, op_name(op).base, count, "metrics", self.rank)
            for op, count in self._fallbacks.items()
        )
        return LogReading(
            fallbacks=fallbacks,
            compilations=tuple(self._compilations),
            metrics=tuple(self._snapshots),
            kind="metrics",
        )

    def _numbers(self, record: RawRecord) -> Iterator[tuple[tuple[str, str | None], float]]:
        """Yield the usable numbers in a record, by key and, for counters per op or recipe, by name."""
        for key, value in record.statistics.items():
            if key == _RECIPES:
                continue
            named = value if isinstance(value, Mapping) else {None: value}
            for name, found in named.items():
                if (total := _total(found, _key(record.metric, key))) is None:
                    self.tally.note("bad value", f"{record.metric} {key} is not a usable number")
                else:
                    yield (key, None if name is None else str(name)), total

    def _count_fallbacks(self, snapshot: MetricSnapshot) -> None:
        for value in snapshot.values:
            if value.key == "FallbackOps" and value.name is not None and value.increment is not None:
                self._fallbacks[value.name] = self._fallbacks.get(value.name, 0) + int(value.increment)

    def _check_fallbacks(self, record: RawRecord) -> None:
        """Note if the calls of the ops do not add up to the total."""
        ops = record.statistics.get("FallbackOps", {})
        counts = [number(count) for count in ops.values()] if isinstance(ops, Mapping) else [None]
        if None in counts or sum(filter(None, counts)) != record.statistics.get("TotalNumber"):
            self.tally.note("missing fallbacks", "the CPU fallbacks of ops do not add up to their total number")

    def _new_recipes(self, record: RawRecord, state: _Metric) -> list[tuple[str, int]]:
        """Return the names and times (ns) of recipes that are new in this record."""
        listed = record.statistics.get(_RECIPES)
        if not isinstance(listed, (list, tuple)):
            return []
        new = listed[state.recipes :]
        state.recipes = len(listed)
        pairs = [pair for pair in map(_recipe, new) if pair is not None]
        if len(pairs) < len(new):
            self.tally.note("bad value", "an item of the recipe list is not a name and a time")
        return pairs

    def _count_compilations(self, snapshot: MetricSnapshot, recipes: list[tuple[str, int]]) -> None:
        increments = {value.key: int(value.increment or 0) for value in snapshot.values if value.name is None}
        for name, dur_ns in recipes:
            self._compilations.append(self._compilation(snapshot, 1, dur_ns, name))
        # The totals include compilations that are not in ``recipes`` if the file does not list recipes, or if a restart
        # has shortened the list.
        rest = increments.get("TotalNumber", 0) - len(recipes)
        if rest > 0:
            rest_ns = max(increments.get("TotalTime", 0) - sum(dur_ns for _, dur_ns in recipes), 0)
            self._compilations.append(self._compilation(snapshot, rest, rest_ns, None))

    def _compilation(self, snapshot: MetricSnapshot, count: int, dur_ns: int, recipe: str | None) -> CompilationRecord:
        return CompilationRecord(
            source="metrics",
            count=count,
            recipe=recipe,
            dur_ns=dur_ns,
            ordinal=snapshot.ordinal,
            trigger=snapshot.trigger,
            rank=self.rank,
        )


def _key(metric: str, key: str) -> _Key:
    return _KEYS.get((metric, key), _COUNT)


def _values(
    metric: str,
    totals: Mapping[tuple[str, str | None], float],
    before: Mapping[tuple[str, str | None], float],
) -> Iterator[MetricValue]:
    for (key, name), total in totals.items():
        known = _key(metric, key)
        increment = None if known.gauge else total - before.get((key, name), 0)
        if name is None or increment:
            yield MetricValue(key, total, increment, known.unit, name)


def _total(found: object, key: _Key) -> float | None:
    if (total := number(found)) is None or total * key.scale >= _LIMIT:
        return None
    return round(total * key.scale) if key.unit == "ns" or total == int(total) else total


def _recipe(item: object) -> tuple[str, int] | None:
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return None
    dur_ns = _total(item[1], _KEYS["graph_compilation", "TotalTime"])
    return None if dur_ns is None else (str(item[0]), int(dur_ns))
