"""Ops per step, so that runs of different lengths compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perftool.engine.fingerprint import normalised
from perftool.model.diff import OpTotal


def totals(rows: Iterable[Mapping[str, Any]], steps: int) -> tuple[OpTotal, ...]:
    """Rows of name, ns and calls over ``steps`` steps as ops per step, those of one normalised name together."""
    merged: dict[str, tuple[float, float]] = {}
    for row in rows:
        name = normalised(str(row["name"]))
        ns, calls = merged.get(name, (0.0, 0.0))
        merged[name] = (ns + float(row["ns"]), calls + float(row["calls"]))
    return tuple(OpTotal(name, ns / steps, calls / steps) for name, (ns, calls) in sorted(merged.items()))
