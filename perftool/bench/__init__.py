"""Micro-benchmarks: each reproduces a problem, applies the advice, checks that the results agree, and measures the
gain.

Each benchmark is a module with the name that the rules use. ``fused_optimizers`` is a table of benchmarks that differ
only in the op, and ``simulated`` lists the benchmarks that run only on the simulator, each with its own script.
``harness`` measures them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from perftool.errors import MissingExtraError, PerfToolError

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark

# Modules that contain no benchmark, or several.
_OTHER = {"harness", "workloads", "scripts", "simulated", "fused_optimizers"}
# The names in ``fused_optimizers``, repeated so that ``benchmark_names`` does not have to import torch.
_OPTIMIZERS = {
    *("adamw_moments", "functional_adamw", "fused_adagrad", "fused_adamw", "fused_clip_norm", "fused_ema"),
    *("fused_lamb", "fused_lars", "fused_sgd"),
}


def benchmark_names() -> list[str]:
    """Return the sorted names of all benchmarks without importing torch."""
    modules = {module.name for module in iter_modules(__path__)} - _OTHER
    return sorted(modules | _OPTIMIZERS | {script.stem for script in (Path(__file__).parent / "scripts").glob("*.py")})


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark ``name``. Raise PerfToolError if there is no such benchmark, and MissingExtraError if torch
    is not installed.
    """
    if name not in benchmark_names():
        raise PerfToolError(f"there is no benchmark {name!r}; the benchmarks are {', '.join(benchmark_names())}")
    try:
        table: dict[str, Benchmark] = import_module(f"perftool.bench.{_table_of(name)}").BENCHMARKS
        benchmark: Benchmark = table.get(name) or import_module(f"perftool.bench.{name}").BENCHMARK
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("benchmarks need PyTorch: pip install 'habana-perf-tool[bench]'") from None
    return benchmark


def _table_of(name: str) -> str:
    return "fused_optimizers" if name in _OPTIMIZERS else "simulated"
