"""An op that the device lacks against ops that it has."""

from __future__ import annotations

from perftool.bench.harness.case import simulated_only

BENCHMARK = simulated_only(
    name="cpu_fallback",
    rules=("FBK101",),
    summary="Distances from ops that the device has instead of one that runs on the CPU",
)
