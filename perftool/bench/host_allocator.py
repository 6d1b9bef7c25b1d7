"""Large temporaries on the host: returned to the system each time, or kept by the allocator."""

from __future__ import annotations

from pathlib import Path

import torch

from perftool.bench.harness.case import Benchmark, Form, FormName, Setting
from perftool.bench.harness.launch import TUNED_HEAP

# Size of each temporary in MiB. By default, the C library returns freed blocks above 32 MiB to the system.
_MIB = {"small": 64, "large": 128}
_RUNS = 9
# Libraries in Debian's packages libtcmalloc-minimal4 and libjemalloc2, in order of preference.
_LIBRARIES = ("libtcmalloc_minimal.so.4", "libjemalloc.so.2")


def build(form: FormName, setting: Setting) -> Form:
    """Both forms run the same ops; they differ only in the environment of their processes."""
    size = _MIB[setting.size] * 2**18
    values = torch.arange(size, dtype=torch.float32).remainder_(251.0)
    latest: list[torch.Tensor] = []

    def run() -> None:
        latest[:] = [(values * 2.0 + 1.0).sqrt().mean()]

    library = _library()
    advised = library.name if library else "the C library's allocator, set to keep memory"
    return Form("the C library's allocator" if form == "naive" else advised, run, lambda: latest)


def _environment(form: FormName) -> dict[str, str]:
    if form == "naive":
        return {"LD_PRELOAD": ""}
    library = _library()
    return {"LD_PRELOAD": str(library)} if library else {"LD_PRELOAD": "", **TUNED_HEAP}


def _library() -> Path | None:
    found = (path for name in _LIBRARIES for path in sorted(Path("/usr/lib").glob(f"*/{name}")))
    return next(found, None)


BENCHMARK = Benchmark(
    name="host_allocator",
    rules=("MEM103",),
    summary="An allocator that keeps large buffers instead of returning them to the system each time",
    build=build,
    sizes=tuple(_MIB),
    traced_size="small",
    tolerance=1e-6,
    separate_processes=True,
    runs_per_process=_RUNS,
    environment=_environment,
)
