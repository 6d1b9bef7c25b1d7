"""Builds metrics files as the bridge writes them: cumulative snapshots, as JSON or text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Snapshot:
    """The counters of a process at one moment. Recipe times are in microseconds."""

    triggered_by: str
    generated_on: str
    recipes: tuple[tuple[str, int], ...] = ()
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    details: bool = True
    cache_hits: Mapping[str, int] | None = None
    cache_misses: Mapping[str, int] = field(default_factory=dict)

    def records(self) -> list[dict[str, object]]:
        """Return the records of one dump, in the order of the writer."""
        statistics: dict[str, dict[str, object]] = {
            "graph_compilation": self._compilation(),
            "cpu_fallback": {
                "TotalNumber": sum(self.fallbacks.values()),
                "FallbackOps": dict(self.fallbacks),
            },
            "memory_defragmentation": {"TotalNumber": 0, "TotalSuccessful": 0, "AvgTime": 0, "MaxTime": 0},
        }
        if self.cache_hits is not None:
            statistics["recipe_cache"] = _cache(self.cache_hits, self.cache_misses)
        head = {"triggered_by": self.triggered_by, "generated_on": self.generated_on}
        return [{"metric_name": name, **head, "statistics": values} for name, values in statistics.items()]

    def _compilation(self) -> dict[str, object]:
        count, total = len(self.recipes), sum(time for _, time in self.recipes)
        values: dict[str, object] = {"TotalNumber": count, "TotalTime": total}
        values["AvgTime"] = total / count if count else 0
        if self.details:
            values["recipe"] = [list(recipe) for recipe in self.recipes]
        return values


def json_file(snapshots: Iterable[Snapshot], *, closed: bool = True) -> str:
    """Return a JSON metrics file. Unless ``closed`` is set, its closing bracket is missing, as if the process had been
    killed.
    """
    records = [json.dumps(record) for snapshot in snapshots for record in snapshot.records()]
    return "[" + ",\n".join(records) + ("]\n" if closed else "")


def text_file(snapshots: Iterable[Snapshot], *, enum_names: bool = False) -> str:
    """Return a text metrics file. With ``enum_names``, the trigger is printed as in Python 3.11 and later."""
    prefix = "MetricDumpTrigger." if enum_names else ""
    return "".join(_text(record, prefix) for snapshot in snapshots for record in snapshot.records())


def _cache(hits: Mapping[str, int], misses: Mapping[str, int]) -> dict[str, object]:
    return {
        "TotalHit": sum(hits.values()),
        "RecipeHit": dict(hits),
        "TotalMiss": sum(misses.values()),
        "RecipeMiss": dict(misses),
    }


def _text(record: Mapping[str, object], prefix: str) -> str:
    statistics = record["statistics"]
    assert isinstance(statistics, dict)
    lines = [
        f"Metric name: {record['metric_name']}",
        f"Triggered by: {prefix}{record['triggered_by']}",
        f"Generated on: {str(record['generated_on']).replace('T', ' ')}",
        "Statistics:",
        *(f"\t{key}: {value}" for key, value in statistics.items()),
    ]
    return "\n".join(lines) + "\n\n"
