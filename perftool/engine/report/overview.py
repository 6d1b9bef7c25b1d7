"""The numbers in every report that do not depend on rules: summary, steps, rankings, engines, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from perftool.engine.report.complete_steps import counted
from perftool.engine.report.efficiency import KNOWN
from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.metrics import metric_kinds
from perftool.model.report import BREAKDOWN, Metric, Phase, RankSummary, Run, Share, Step, StepLength
from perftool.store.ranks import world_size
from perftool.store.trace_store import TraceStore

Row = TypeVar("Row")
_TOP = 15


# The parts of a step, and their columns in the table steps. Host activity counts only while the device is idle, so that
# the parts do not overlap.
_USES = {
    "kernel": "compute", "memcpy": "copy", "memset": "fill", "communication": "collective",
    "runtime": "idle_runtime", "dataloader": "idle_dataloader", "cpu_op": "idle_cpu_op",
}  # fmt: skip


def summary(store: TraceStore) -> dict[str, Metric]:
    """Return all metrics of the JSON report (docs/json.md). Metrics that the input lacks have no value."""
    return metrics(store.rows("summary"))


def metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, Metric]:
    """Return the metrics of the JSON report, from rows of the table ``summary``."""
    found = {row["metric"]: row for row in rows}
    empty: dict[str, Any] = {"value": None, "numerator": None, "denominator": None}
    return {
        kind.name: Metric(kind.name, row["value"], kind.unit, row["numerator"], row["denominator"])
        for kind in metric_kinds()
        for row in [found.get(kind.name, empty)]
    }


def steps(store: TraceStore) -> Iterable[Step]:
    """Yield the steps of all ranks, in time order."""
    for row in store.rows("steps"):
        parts = {part: row[part] for part in BREAKDOWN}
        uses = {part: row[use] for part, use in _USES.items()}
        uses["other"] = row["dur"] - sum(uses.values())
        yield Step(row["rank"], row["name"], row["ts"], row["dur"], parts, row["partial"], row["left_out"], uses)


# Shares are relative to the time for which the device's state is known. If it is never known, they are relative to the
# windows.
_RANKING = """
SELECT name, sum(total_ns)::BIGINT AS total_ns, sum(count)::BIGINT AS count,
       sum(total_ns) / coalesce((SELECT sum("end" - ts) FROM {window} HAVING sum("end" - ts) > 0),
                                 (SELECT sum("end" - ts) FROM windows)) AS share
FROM {table} GROUP BY name ORDER BY total_ns DESC, name
"""
IDLE_CAUSES = _RANKING.format(table="_idle_totals", window="device_windows")
DEVICE_OPS = _RANKING.format(table="_device_op_totals", window="device_windows")
OPS = _RANKING.format(table="_op_totals", window="windows")
TOP_DEVICE_OPS = f"{DEVICE_OPS} LIMIT {_TOP}"
TOP_OPS = f"{OPS} LIMIT {_TOP}"


def shares(store: TraceStore, sql: str) -> tuple[Share, ...]:
    """Return the rows of a ranking, largest first."""
    store.build(["_idle_totals", "_device_op_totals", "_op_totals", "windows", "device_windows"])
    return tuple(Share(**row) for row in store.select(sql))


def median(values: Sequence[int]) -> int:
    """Return the median of ``values``, or 0 if there are none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


# Only engines with their own lanes (Gaudi's): other rows of the table group work by kind.
_ENGINES = "SELECT * FROM engines WHERE engine IN (SELECT engine FROM tracks) ORDER BY rank, busy_ns DESC, engine"
_RECIPES = (
    f"SELECT * EXCLUDE (ts, kernels, kernel_names) FROM recipes ORDER BY busy_ns DESC, rank, recipe, name LIMIT {_TOP}"
)
_FALLBACKS = """
SELECT op, dtypes, count, traced, time_ns, source FROM fallbacks ORDER BY time_ns DESC NULLS LAST, count DESC, op
"""


def engines(store: TraceStore) -> tuple[Engine, ...]:
    """Return the engines of the device. The result is empty if its lanes do not show them."""
    return _rows(store, Engine, _ENGINES, "engines", "tracks")


def recipes(store: TraceStore) -> tuple[Recipe, ...]:
    """Return the recipes that took the most device time."""
    return _rows(store, Recipe, _RECIPES, "recipes")


def fallbacks(store: TraceStore) -> tuple[Fallback, ...]:
    """Return the ops that fell back to the CPU, longest time first."""
    return _rows(store, Fallback, _FALLBACKS, "fallbacks")


def ranks(store: TraceStore) -> tuple[RankSummary, ...]:
    """Return all ranks among the inputs, including unreadable ones."""
    return tuple(RankSummary(**row) for row in store.rows("ranks") if row["status"] != "missing")


def run(store: TraceStore) -> Run:
    """Return the run, with its kind and how its steps were found. The kind is training if any rank trains. Otherwise,
    it is serving if there are iterations, or inference if every rank only runs inference."""
    kinds = {row["kind"] for row in store.rows("run_kinds")}
    kind: Literal["serving", "inference"] | None = "inference" if kinds == {"inference"} else None
    kind = "serving" if store.has_rows("serving_iterations") else kind
    found = {(row["source"], row["confidence"]) for row in store.rows("steps") if row["step"] is not None}
    # If the steps of several ranks were found by different signals, state the least certain signal.
    source, confidence = max(found, key=lambda pair: (pair[1] != "high", pair), default=(None, None))
    return Run(
        "training" if "training" in kinds else kind, world_size(store.metadata), source, confidence,
        lengths=lengths(store), mean_step_ns=_mean_step_ns(store), step_unit=_step_unit(store),
    )  # fmt: skip


def _step_unit(store: TraceStore) -> str | None:
    """Return the calls that make up the detected steps of all ranks, as text, or None if no steps were detected."""
    return ", ".join(sorted({row["unit"] for row in store.rows("_step_units")})) or None


_LENGTHS = """
SELECT sum(steps)::BIGINT AS steps, min(shortest_ns) AS shortest_ns, max(longest_ns) AS longest_ns,
       sum(total_ns)::BIGINT AS total_ns
FROM step_lengths GROUP BY length
-- The ranks of a run synchronise, so if only some of them have two lengths, something disturbed these ranks.
HAVING count(*) = (SELECT count(DISTINCT rank) FROM steps WHERE NOT partial AND step IS NOT NULL) ORDER BY length DESC
"""


def lengths(store: TraceStore) -> tuple[StepLength, ...]:
    """Return the short and the long steps if all ranks have steps of two lengths; otherwise, the result is empty."""
    return _rows(store, StepLength, _LENGTHS, "step_lengths")


_MEAN = "SELECT (sum(total_ns) / sum(steps))::BIGINT AS ns FROM _usual_steps HAVING bool_and(uneven)"


def _mean_step_ns(store: TraceStore) -> int | None:
    """Return the mean step in ns if all ranks have uneven steps; otherwise, return None."""
    store.build(["_usual_steps"])
    return next((row["ns"] for row in store.select(_MEAN)), None)


def usual_step_ns(store: TraceStore, steps: Iterable[Step]) -> int:
    """Return the step time to compare gains with, in ns: the median of the complete ``steps`` of all ranks, or their
    mean if they are uneven. All ranks are included, because evidence is summed over all ranks."""
    return _mean_step_ns(store) or median([step.dur_ns for step in counted(steps)])


_PHASES = """
SELECT phase AS name, sum(total_ns)::BIGINT AS total_ns, sum(count)::BIGINT AS count,
       sum(total_ns) / sum(sum(total_ns)) OVER () AS share, arg_max(evidence, (total_ns, -rank)) AS evidence
FROM _phase_totals GROUP BY phase ORDER BY total_ns DESC, name
"""


def phases(store: TraceStore) -> tuple[Phase, ...]:
    """Return the phases of the recordings, largest first."""
    return _rows(store, Phase, _PHASES, "_phase_totals")


def roofline(store: TraceStore) -> float | None:
    """Return the share of their roofline that the run's matmuls reach, or None if the share is unknown for most of
    them."""
    totals = store.rows("_roofline_totals")
    spent = sum(row["dur"] for row in totals)
    whole = sum(row["matrix_ns"] for row in store.rows("_efficiency_totals")) if spent else 0
    return sum(row["bound_ns"] for row in totals) / spent if spent and spent >= KNOWN * whole else None


def _rows(store: TraceStore, kind: type[Row], sql: str, *tables: str) -> tuple[Row, ...]:
    store.build(tables)
    return tuple(kind(**row) for row in store.select(sql))
