"""Every benchmark that can be measured here: both forms give the same results, and leave traces that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.bench.harness.launch import Plan, measure, record_traces
from perftool.engine.analysis import analyze

BRIEF = Plan(rounds=3, seconds=0.2, pairs=1)
# They start the compiler, for up to a minute; the test of `benchmark --validate` runs them too.
COMPILING = {"dynamic_shapes", "hpu_graphs", "loop_constants", "torch_compile"}
NAMES = [name for name in benchmark_names() if name not in COMPILING]


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_agree_and_their_traces_can_be_read(name: str, tmp_path: Path) -> None:
    benchmark = find_benchmark(name)
    if "cpu" not in benchmark.devices or benchmark.unavailable():
        pytest.skip(benchmark.unavailable() or benchmark.reason)

    measured = measure(benchmark, benchmark.sizes[0], "cpu", BRIEF, tmp_path)
    traces = record_traces(benchmark, "cpu", tmp_path)

    assert measured.max_error <= benchmark.tolerance
    assert measured.ratio.value > 0.0
    for paths in traces.values():
        report = analyze([str(path) for path in paths])
        assert [read.status for read in report.inputs] == ["ok"] * benchmark.ranks
        assert len(report.steps) == benchmark.traced_steps * benchmark.ranks
