"""How much the schedule of a run lets a fix give back, whatever the evidence of its rule adds up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perftool.model.rule import Side
from perftool.store.trace_store import TraceStore


def limited(
    store: TraceStore, relieves: Side, rows: Sequence[Mapping[str, Any]], step_ns: int
) -> Iterator[Mapping[str, Any]]:
    """``rows`` of a rule whose fix takes work from the side ``relieves``, no gain above what that side holds up.

    A row that names no rank has the largest limit of all. A run without device work has no limits.
    """
    column = f"{relieves}_ratio"
    ratios = {row["rank"]: row[column] for row in store.rows("gain_limits") if row[column] is not None}
    widest = max(ratios.values(), default=1.0)
    for row in rows:
        gain_ns = row.get("gain_ns")
        limit = round(ratios.get(row.get("rank"), widest) * step_ns)
        yield row if gain_ns is None else {**row, "gain_ns": min(gain_ns, limit)}
