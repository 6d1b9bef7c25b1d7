"""Many small transfers against one."""

from __future__ import annotations

from perftool.bench.harness.case import simulated_only

BENCHMARK = simulated_only(
    name="small_copies",
    rules=("CPY103",),
    summary="The fields of a batch packed and copied at once",
)
