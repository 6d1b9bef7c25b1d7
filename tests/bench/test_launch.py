"""Processes that measure: their orders, and what happens when they fail."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from warm_python import warm_executable

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.bench.harness.launch import BenchmarkError, Plan, measure, measure_and_record, record_traces
from perftool.errors import PerfToolError

BRIEF = Plan(rounds=3, seconds=0.2, pairs=1)


def test_the_error_of_a_failed_worker_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", warm_executable(tmp_path))
    unknown = replace(find_benchmark("fused_sgd"), name="unheard_of")

    with pytest.raises(BenchmarkError, match=r"unheard_of: .*there is no benchmark 'unheard_of'"):
        record_traces(unknown, "cpu", BRIEF, tmp_path)


def test_the_error_of_a_worker_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    broken = replace(find_benchmark("fused_sgd"), environment=lambda form: {"PYTHONHOME": "nowhere"})

    with pytest.raises(BenchmarkError, match=r"^fused_sgd: .+"):
        measure(broken, "small", "cpu", BRIEF, tmp_path)


def test_an_unknown_benchmark_lists_the_known_ones() -> None:
    with pytest.raises(PerfToolError, match=r"there is no benchmark 'x'; the benchmarks are .*fused_adamw"):
        find_benchmark("x")


def test_forms_are_timed_compared_and_recorded(tmp_path: Path) -> None:
    sgd = replace(find_benchmark("fused_sgd"), most_rounds=3)

    measured, recorded = measure_and_record(sgd, "cpu", BRIEF, tmp_path)

    assert (measured.rounds, measured.heap, measured.clock, measured.threads) == (3, "default", "cpu", 1)
    assert measured.max_error <= sgd.tolerance
    assert measured.ratio.low <= measured.ratio.value <= measured.ratio.high
    assert measured.torch is not None
    assert measured.torch.title == "torch.optim.SGD(fused=True)"
    assert measured.torch_ratio is not None
    assert recorded.ratio is not None
    assert [[path.exists() for path in paths] for paths in recorded.files.values()] == [[True], [True]]


def test_every_benchmark_is_named_like_its_file_and_traces_one_of_its_sizes() -> None:
    found = {name: find_benchmark(name) for name in benchmark_names()}

    assert [name for name, benchmark in found.items() if benchmark.name != name] == []
    assert [name for name, benchmark in found.items() if benchmark.traced_size not in benchmark.sizes] == []
    assert [name for name, benchmark in found.items() if benchmark.separate_processes and benchmark.torch_best] == []
