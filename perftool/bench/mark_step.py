"""Many small graphs against few large ones."""

from __future__ import annotations

from perftool.bench.harness.case import simulated_only

BENCHMARK = simulated_only(
    name="mark_step",
    rules=("RCP107",),
    summary="Graphs cut where a step ends instead of behind every layer",
)
