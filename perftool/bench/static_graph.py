"""DistributedDataParallel with a search for unused parameters in every step, or with a graph declared static."""

from __future__ import annotations

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import on_ranks, step_form


def build(form: FormName, setting: Setting) -> Form:
    """Return a step with ``find_unused_parameters=True``, or with ``static_graph=True``."""
    if form == "naive":
        return step_form("DistributedDataParallel(find_unused_parameters=True)", setting, find_unused_parameters=True)
    return step_form("DistributedDataParallel(static_graph=True)", setting, static_graph=True)


BENCHMARK = on_ranks(
    name="static_graph",
    rules=("COL104",),
    summary="A graph declared static instead of a search for unused parameters",
    build=build,
    traced_size="recorded",
)
