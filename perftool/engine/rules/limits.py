"""Caps the gain of a fix at what the timeline of the run allows, because a gain from evidence may be larger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from perftool.engine.rules.rule_queries import Context
from perftool.model.rule import Side
from perftool.store.trace_store import TraceStore
from perftool.units import format_ratio

# The columns with the gain in ns per step: from the evidence, from a replay, and from a trial.
_GAINS = ("gain_ns", "predicted_ns", "tried_ns")
# The rule that reports recordings of a start-up or of a graph capture.
_ONE_OFF = "STP103"
_OWN_STEPS = """
SELECT w.rank, (min(w.dur) / greatest(min(w.steps), 1))::DOUBLE AS mean_ns,
       coalesce(min(u.usual_ns), min(w.dur))::DOUBLE AS usual_ns
FROM windows AS w LEFT JOIN _usual_steps AS u USING (rank) GROUP BY w.rank
"""
_STEPS: WeakKeyDictionary[TraceStore, dict[Any, dict[str, float]]] = WeakKeyDictionary()
_KNOWN: WeakKeyDictionary[TraceStore, dict[Any, dict[str, Any]]] = WeakKeyDictionary()


def limited(
    store: TraceStore, relieves: Side | None, rows: Iterable[Mapping[str, Any]], context: Context
) -> Iterator[Mapping[str, Any]]:
    """Cap the gains in ``rows`` at the delay caused by the side (host or device) that the fix ``relieves``.

    If a rank was not recorded in its steady state, its rows lose their gain; if the recorded phase does not recur, rows
    with advice for the host are dropped. For a row without a rank, the largest limit of all ranks applies. A run
    without device work has no limits.
    """
    limits = _limits(store)
    column = f"{relieves}_ratio"
    ratios = {rank: row[column] for rank, row in limits.items() if row.get(column) is not None}
    widest = max(ratios.values(), default=1.0)
    unsteady = {rank: row["reported_by"] for rank, row in limits.items() if row["unsteady"]}
    for row in rows:
        gains = {name: row[name] for name in _GAINS if row.get(name) is not None}
        if row.get("rank") in unsteady or (row.get("rank") is None and unsteady):
            reported_by = unsteady.get(row.get("rank"), next(iter(unsteady.values())))
            if relieves == "host" and reported_by == _ONE_OFF:
                continue
            yield {**row, **dict.fromkeys(gains), "explained_by": reported_by}
        elif relieves is None:
            yield row
        else:
            # A replay already accounts for host work that device work hides. A bound is capped by the idle time.
            kept = gains if relieves == "host" else {name: gains[name] for name in gains if name != "predicted_ns"}
            ratio = ratios.get(row.get("rank"), widest)
            # Bounds and trials refer to the mean step, predictions to the typical step.
            steps_ns = own_steps_ns(store, row.get("rank")) or {
                "gain_ns": context.mean_step_ns, "predicted_ns": context.step_ns
            }  # fmt: skip
            # A thread that has no core looks busy.
            waits_ns = row.get("core_wait_ns") or 0
            yield {
                **row,
                **{
                    name: min(ns, round(ratio * steps_ns.get(name, steps_ns["gain_ns"]) + waits_ns))
                    for name, ns in kept.items()
                },
            }


def own_steps_ns(store: TraceStore, rank: int | None) -> Mapping[str, float] | None:
    """Return the mean step (for ``gain_ns``) and typical step (for ``predicted_ns``) of ``rank`` in ns, or None if
    unknown.
    """
    if rank is None:
        return None
    if store not in _STEPS:
        store.build(["windows", "_usual_steps"])
        rows = store.select(_OWN_STEPS)
        _STEPS[store] = {row["rank"]: {"gain_ns": row["mean_ns"], "predicted_ns": row["usual_ns"]} for row in rows}
    return _STEPS[store].get(rank)


def unsteady(store: TraceStore, rank: int) -> str | None:
    """Return why the recording of ``rank`` does not show what a fix would save in steady steps, or None if it does."""
    limit = _limits(store).get(rank)
    return limit["unsteady"] if limit else None


# Steps that took this many times the CPU time of earlier ones do not show what a fix would save in other steps.
_LENGTHENED = 1.25
# The profiler never makes steps this many times as long, so the earlier steps did other work, such as ending an epoch.
_OTHER_WORK = 3
# Steps that differ as much from each other as from the earlier ones may just have different inputs.
_CPU_TIMES = """
SELECT p.process_ns / p.steps AS recorded_ns, q.process_ns / q.steps AS earlier_ns, q.steps AS earlier_steps
FROM memory_faults AS p JOIN memory_faults AS q ON q.rank = p.rank AND NOT q.profiled
WHERE p.profiled AND p.rank = $rank AND q.process_ns > 0 AND q.steps > 0 AND p.steps > 0
    AND recorded_ns > $least * earlier_ns AND recorded_ns <= $other_work * earlier_ns
    AND (
        SELECT max(dur) / min(dur) < recorded_ns / earlier_ns FROM steps AS s WHERE s.rank = p.rank AND NOT partial
    )
"""


@dataclass(frozen=True)
class CpuTimes:
    """The mean CPU time of a recorded step and of one of the ``earlier_steps`` before the recording, in ns."""

    recorded_ns: float
    earlier_ns: float
    earlier_steps: int

    @property
    def more(self) -> str:
        """How much more CPU time the recorded steps took, as text."""
        return format_ratio(self.recorded_ns / self.earlier_ns - 1)


def cpu_times(store: TraceStore, rank: int, least: float) -> CpuTimes | None:
    """Return the CPU times of the steps of ``rank``, if the recorded steps took more than ``least`` times as much as
    earlier steps, and differ less from each other; otherwise, return None. Also return None if no earlier step was
    measured, or if the earlier steps were so short that they must have done other work."""
    store.build(["memory_faults", "steps"])
    rows = store.select(_CPU_TIMES, {"rank": rank, "least": least, "other_work": _OTHER_WORK})
    return CpuTimes(**rows[0]) if rows else None


def lengthened(store: TraceStore, rank: int) -> str | None:
    """Explain that the gains of ``rank`` are bounds instead of predictions, because the recorded steps took much more
    CPU time than earlier steps. Return None if they did not, or if no earlier step was measured."""
    times = cpu_times(store, rank, _LENGTHENED)
    return f"a recorded step took {times.more} more CPU time than an earlier one, on average" if times else None


def overloaded(store: TraceStore, rank: int) -> str | None:
    """Explain that the gains of ``rank`` are bounds instead of predictions, because its threads waited for cores.
    Return None if they did not."""
    loads = {row["rank"]: row for row in store.rows("machine_loads")}
    if rank not in loads or not loads[rank]["overloaded"]:
        return None
    share = format_ratio(loads[rank]["overload_ns"] / loads[rank]["wall_ns"])
    return f"the machine was overloaded: threads that were ready had no core for {share} of the recorded time"


def _limits(store: TraceStore) -> dict[Any, dict[str, Any]]:
    """Return the row of each rank in gain_limits, cached because nearly all rules need it."""
    if store not in _KNOWN:
        _KNOWN[store] = {row["rank"]: row for row in store.rows("gain_limits")}
    return _KNOWN[store]
