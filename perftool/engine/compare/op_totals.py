"""Computes the time and calls of ops per step, so that runs of different lengths can be compared."""

from __future__ import annotations

from collections.abc import Iterable

from perftool.engine.rules.fingerprint import normalised
from perftool.model.diff import OpTotal
from perftool.model.report import Share


def totals(ranking: Iterable[Share], steps: int) -> tuple[OpTotal, ...]:
    """Return the time (in ns) and calls per step by normalised name, from a ``ranking`` over ``steps`` steps."""
    merged: dict[str, tuple[int, int]] = {}
    for row in ranking:
        name = normalised(row.name)
        ns, calls = merged.get(name, (0, 0))
        merged[name] = (ns + row.total_ns, calls + row.count)
    return tuple(OpTotal(name, ns / steps, calls / steps) for name, (ns, calls) in sorted(merged.items()))
