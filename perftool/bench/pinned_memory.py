"""Input copies that the device waits for against copies beside its work."""

from __future__ import annotations

from perftool.bench.harness.case import simulated_only

BENCHMARK = simulated_only(
    name="pinned_memory",
    rules=("CPY102",),
    summary="Batches copied from pinned memory during the step before",
)
