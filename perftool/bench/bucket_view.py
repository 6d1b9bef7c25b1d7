"""DistributedDataParallel with separate gradients, or with gradients that are views of the buckets."""

from __future__ import annotations

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import on_ranks, step_form


def build(form: FormName, setting: Setting) -> Form:
    """Return a step with ``gradient_as_bucket_view`` off, which is the default, or on."""
    view = form == "advised"
    return step_form(f"DistributedDataParallel(gradient_as_bucket_view={view})", setting, gradient_as_bucket_view=view)


# On a CPU, the copies take little time compared with the all-reduce, so memory is measured.
BENCHMARK = on_ranks(
    name="bucket_view",
    rules=("CPY104",),
    summary="Gradients that are views of the buckets instead of copies",
    build=build,
    traced_size="small",
    quantity="memory",
)
