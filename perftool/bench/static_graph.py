"""DistributedDataParallel: a search for unused parameters in every step against a graph known to stay the same."""

from __future__ import annotations

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.workloads.data_parallel import RANKS, SIZES, step_form


def build(form: FormName, setting: Setting) -> Form:
    """``find_unused_parameters=True``, or ``static_graph=True``."""
    if form == "naive":
        return step_form("DistributedDataParallel(find_unused_parameters=True)", setting, find_unused_parameters=True)
    return step_form("DistributedDataParallel(static_graph=True)", setting, static_graph=True)


BENCHMARK = Benchmark(
    name="static_graph",
    rules=("COL104",),
    summary="A graph declared static instead of a search for unused parameters",
    build=build,
    sizes=tuple(SIZES),
    traced_size="recorded",
    tolerance=1e-5,
    clock="wall",
    ranks=RANKS,
    devices=("cpu",),
    reason="this benchmark has two gloo processes on the CPU only",
)
