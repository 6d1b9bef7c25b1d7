"""The numbers every report shows, whatever the rules say: summary, steps, rankings, engines, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.metrics import metric_kinds
from perftool.model.report import BREAKDOWN, Metric, RankSummary, Run, Share, Step
from perftool.store.ranks import world_size
from perftool.store.trace_store import TraceStore

Row = TypeVar("Row")
_TOP = 15


# The parts of a step that the columns of steps split another way: by what the device is there for.
_USES = {"kernel": "compute", "communication": "collective", "memcpy": "copy", "memset": "fill"}


def summary(store: TraceStore) -> dict[str, Metric]:
    """Every metric of the contract; those the input does not show have no value."""
    return metrics(store.rows("summary"))


def metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, Metric]:
    """The metrics of the contract from rows of the table ``summary``."""
    found = {row["metric"]: row for row in rows}
    empty: dict[str, Any] = {"value": None, "numerator": None, "denominator": None}
    return {
        kind.name: Metric(kind.name, row["value"], kind.unit, row["numerator"], row["denominator"])
        for kind in metric_kinds()
        for row in [found.get(kind.name, empty)]
    }


def steps(store: TraceStore) -> Iterable[Step]:
    """The steps of every rank, in order of time."""
    for row in store.rows("steps"):
        parts = {part: row[part] for part in BREAKDOWN}
        uses = {**parts, **{part: row[use] for part, use in _USES.items()}}
        yield Step(row["rank"], row["name"], row["ts"], row["dur"], parts, row["partial"], row["left_out"], uses)


_RANKING = """
SELECT name, sum(total_ns)::BIGINT AS total_ns, sum(count)::BIGINT AS count,
       sum(total_ns) / (SELECT sum("end" - ts) FROM {window}) AS share
FROM {table} GROUP BY name ORDER BY total_ns DESC, name
"""
IDLE_CAUSES = _RANKING.format(table="_idle_totals", window="device_windows")
DEVICE_OPS = _RANKING.format(table="_device_op_totals", window="windows")
OPS = _RANKING.format(table="_op_totals", window="windows")
TOP_DEVICE_OPS = f"{DEVICE_OPS} LIMIT {_TOP}"
TOP_OPS = f"{OPS} LIMIT {_TOP}"


def shares(store: TraceStore, sql: str) -> tuple[Share, ...]:
    """One of the rankings above, largest first."""
    store.build(["_idle_totals", "_device_op_totals", "_op_totals", "windows", "device_windows"])
    return tuple(Share(**row) for row in store.select(sql))


def median(values: Sequence[int]) -> int:
    """The middle of ``values``, 0 for none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


_ENGINES = "SELECT * FROM engines WHERE engine IN (SELECT engine FROM tracks) ORDER BY rank, busy_ns DESC, engine"
_RECIPES = f"SELECT * EXCLUDE (ts, kernels) FROM recipes ORDER BY busy_ns DESC, rank, recipe LIMIT {_TOP}"
_FALLBACKS = """
SELECT op, dtypes, count, traced, time_ns, source FROM fallbacks ORDER BY time_ns DESC NULLS LAST, count DESC, op
"""


def engines(store: TraceStore) -> tuple[Engine, ...]:
    """The engine groups of Gaudi devices; none for other devices."""
    return _rows(store, Engine, _ENGINES, "engines") if _on_gaudi(store) else ()


def recipes(store: TraceStore) -> tuple[Recipe, ...]:
    """The recipes that took most device time."""
    return _rows(store, Recipe, _RECIPES, "recipes") if _on_gaudi(store) else ()


def fallbacks(store: TraceStore) -> tuple[Fallback, ...]:
    """The operators that ran on the CPU, the most expensive first."""
    return _rows(store, Fallback, _FALLBACKS, "fallbacks")


def ranks(store: TraceStore) -> tuple[RankSummary, ...]:
    """Every rank that was given, also those that could not be read."""
    return tuple(RankSummary(**row) for row in store.rows("ranks") if row["status"] != "missing")


def run(store: TraceStore) -> Run:
    """What the run did: training when any rank shows it, inference when all ranks do."""
    kinds = {row["kind"] for row in store.rows("run_kinds")}
    ranks = world_size(store.metadata)
    if "training" in kinds:
        return Run("training", ranks)
    return Run("inference" if kinds == {"inference"} else None, ranks)


def roofline(store: TraceStore) -> float | None:
    """The share of their roofline that the matrix products of the run reach; None where shapes or rates are unknown."""
    totals = store.rows("_roofline_totals")
    spent = sum(row["dur"] for row in totals)
    return sum(row["bound_ns"] for row in totals) / spent if spent else None


def _on_gaudi(store: TraceStore) -> bool:
    store.build(["tracks"])
    return bool(store.select("SELECT 1 FROM tracks WHERE engine IS NOT NULL LIMIT 1"))


def _rows(store: TraceStore, kind: type[Row], sql: str, table: str) -> tuple[Row, ...]:
    store.build([table])
    return tuple(kind(**row) for row in store.select(sql))
