"""DistributedDataParallel with its default bucket size, or with the sizes in Gaudi's guide for two models."""

from __future__ import annotations

from perftool.bench.harness.case import Form, FormName, Setting
from perftool.bench.workloads.data_parallel import on_ranks, step_form

# Size of the advised buckets in MiB; for the first two models, it is about the size of all gradients.
_ADVISED = {"hundred": 100, "two hundred": 200, "recorded": 100}
_DEFAULT = 25


def build(form: FormName, setting: Setting) -> Form:
    """Return a step under DistributedDataParallel with buckets of the default or recommended size."""
    megabytes = _DEFAULT if form == "naive" else _ADVISED[setting.size]
    return step_form(f"DistributedDataParallel(bucket_cap_mb={megabytes})", setting, bucket_cap_mb=megabytes)


BENCHMARK = on_ranks(
    name="bucket_size",
    rules=(),
    summary="Gradients reduced in buckets of 100 or 200 MiB instead of 25",
    build=build,
    traced_size="recorded",
    sizes=tuple(_ADVISED),
)
