"""DistributedDataParallel: many small buckets against few large ones."""

from __future__ import annotations

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import on_ranks, step_form

_SMALL_MB = 0.01
_LARGE_MB = 25


def build(form: FormName, setting: Setting) -> Form:
    """Buckets of 10 KB, or of the default 25 MB."""
    megabytes = _SMALL_MB if form == "naive" else _LARGE_MB
    return step_form(f"DistributedDataParallel(bucket_cap_mb={megabytes})", setting, bucket_cap_mb=megabytes)


BENCHMARK = on_ranks(
    name="bucket_size",
    rule="COL101",
    summary="Gradients reduced in few large buckets instead of many small ones",
    build=build,
    traced_size="recorded",
)
