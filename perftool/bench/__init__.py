"""Micro-benchmarks: each reproduces a problem, applies the advice, checks that the results agree and measures the gain.

One file for each, named as the rules name it; ``harness`` measures them.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from perftool.errors import MissingExtraError, PerfToolError

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark

# Folders of this package that hold no benchmarks.
_OTHER = {"harness", "workloads", "scripts"}


def benchmark_names() -> list[str]:
    """The names of all benchmarks, sorted; torch is not imported."""
    return sorted(module.name for module in iter_modules(__path__) if module.name not in _OTHER)


def find_benchmark(name: str) -> Benchmark:
    """The benchmark ``name``. Raises PerfToolError for an unknown one, and MissingExtraError without torch."""
    if name not in benchmark_names():
        raise PerfToolError(f"there is no benchmark {name!r}; there are {', '.join(benchmark_names())}")
    try:
        benchmark: Benchmark = import_module(f"perftool.bench.{name}").BENCHMARK
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("benchmarks need PyTorch: pip install 'habana-perf-tool[bench]'") from None
    return benchmark
