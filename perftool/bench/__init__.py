"""Micro-benchmarks: each reproduces a problem, applies the advice, checks that the results agree and measures the gain.

One file for each, named as the rules name it, or only a script for those that nothing but the simulator can show, which
``simulated`` lists; ``harness`` measures them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from perftool.errors import MissingExtraError, PerfToolError

if TYPE_CHECKING:
    from perftool.bench.harness.case import Benchmark

# What of this package is no benchmark.
_OTHER = {"harness", "workloads", "scripts", "simulated"}


def benchmark_names() -> list[str]:
    """The names of all benchmarks, sorted; torch is not imported."""
    modules = {module.name for module in iter_modules(__path__)} - _OTHER
    return sorted(modules | {script.stem for script in (Path(__file__).parent / "scripts").glob("*.py")})


def find_benchmark(name: str) -> Benchmark:
    """The benchmark ``name``. Raises PerfToolError for an unknown one, and MissingExtraError without torch."""
    if name not in benchmark_names():
        raise PerfToolError(f"there is no benchmark {name!r}; there are {', '.join(benchmark_names())}")
    try:
        simulated: dict[str, Benchmark] = import_module("perftool.bench.simulated").BENCHMARKS
        benchmark: Benchmark = simulated.get(name) or import_module(f"perftool.bench.{name}").BENCHMARK
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("benchmarks need PyTorch: pip install 'habana-perf-tool[bench]'") from None
    return benchmark
