"""How much the schedule of a run lets a fix give back, whatever the evidence of its rule adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from perftool.model.rule import Side
from perftool.store.trace_store import TraceStore

# What a fix gives back per step: by the evidence, and by a replay.
_GAINS = ("gain_ns", "predicted_ns")
_KNOWN: WeakKeyDictionary[TraceStore, dict[Any, dict[str, Any]]] = WeakKeyDictionary()


def limited(
    store: TraceStore, relieves: Side | None, rows: Iterable[Mapping[str, Any]], step_ns: int
) -> Iterator[Mapping[str, Any]]:
    """``rows`` of a rule whose fix takes work from the side ``relieves``, no gain above what that side holds up.

    What is recorded of a rank that is not in its steady state gives no gain. A row that names no rank has the largest
    limit of all. A run without device work has no limits.
    """
    limits = _limits(store)
    column = f"{relieves}_ratio"
    ratios = {rank: row[column] for rank, row in limits.items() if row.get(column) is not None}
    widest = max(ratios.values(), default=1.0)
    unsteady = {rank: row["told_by"] for rank, row in limits.items() if row["unsteady"]}
    for row in rows:
        gains = {name: row[name] for name in _GAINS if row.get(name) is not None}
        if row.get("rank") in unsteady or (row.get("rank") is None and unsteady):
            told_by = unsteady.get(row.get("rank"), next(iter(unsteady.values())))
            yield {**row, **dict.fromkeys(gains), "explained_by": told_by}
        elif relieves is None:
            yield row
        else:
            # What work of the device hides is for the replay to tell; idle time is the most that the host can win.
            kept = gains if relieves == "host" else {name: ns for name, ns in gains.items() if name == "gain_ns"}
            limit = round(ratios.get(row.get("rank"), widest) * step_ns)
            yield {**row, **{name: min(ns, limit) for name, ns in kept.items()}}


def unsteady(store: TraceStore, rank: int) -> str | None:
    """Why nothing that ``rank`` shows is a gain of its steady step; None when it may be one."""
    limit = _limits(store).get(rank)
    return limit["unsteady"] if limit else None


def _limits(store: TraceStore) -> dict[Any, dict[str, Any]]:
    """The row of each rank in gain_limits, which nearly every rule asks for."""
    if store not in _KNOWN:
        _KNOWN[store] = {row["rank"]: row for row in store.rows("gain_limits")}
    return _KNOWN[store]
