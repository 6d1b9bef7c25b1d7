"""Processes that measure: what they are told, and what becomes of those that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.bench.harness.launch import BenchmarkError, Plan, measure, record_traces
from perftool.errors import PerfToolError

BRIEF = Plan(rounds=3, seconds=0.2, pairs=1)


def test_a_worker_that_fails_is_quoted(tmp_path: Path) -> None:
    unknown = replace(find_benchmark("fused_sgd"), name="unheard_of")

    with pytest.raises(BenchmarkError, match=r"unheard_of: .*there is no benchmark 'unheard_of'"):
        record_traces(unknown, "cpu", BRIEF, tmp_path)


def test_a_worker_that_cannot_even_start_is_quoted(tmp_path: Path) -> None:
    broken = replace(find_benchmark("fused_sgd"), environment=lambda form: {"PYTHONHOME": "nowhere"})

    with pytest.raises(BenchmarkError, match=r"^fused_sgd: .+"):
        measure(broken, "small", "cpu", BRIEF, tmp_path)


def test_an_unknown_benchmark_names_those_there_are() -> None:
    with pytest.raises(PerfToolError, match=r"there is no benchmark 'x'; there are .*fused_adamw"):
        find_benchmark("x")


def test_forms_are_timed_compared_and_recorded(tmp_path: Path) -> None:
    clipping = find_benchmark("fused_clip_norm")

    measured = measure(clipping, "small", "cpu", BRIEF, tmp_path, heap="tuned")
    recorded = record_traces(clipping, "cpu", BRIEF, tmp_path)

    assert (measured.rounds, measured.heap, measured.clock, measured.threads) == (3, "tuned", "cpu", 1)
    assert measured.max_error <= clipping.tolerance
    assert measured.ratio.low <= measured.ratio.value <= measured.ratio.high
    assert recorded.ratio is not None
    assert {form: [path.exists() for path in paths] for form, paths in recorded.files.items()} == {
        "naive": [True],
        "advised": [True],
    }


def test_forms_that_are_apart_run_as_often_as_they_want(tmp_path: Path) -> None:
    allocator = replace(find_benchmark("host_allocator"), runs_apart=3)

    measured = measure(allocator, "small", "cpu", BRIEF, tmp_path)

    assert measured.rounds == 3
    assert measured.max_error <= allocator.tolerance


def test_forms_that_differ_in_their_environment_leave_it_beside_the_trace(tmp_path: Path) -> None:
    files = record_traces(find_benchmark("host_allocator"), "cpu", BRIEF, tmp_path).files

    assert [[path.name for path in paths] for paths in files.values()] == [
        ["host_allocator-naive.json.gz", "host_allocator.env"],
        ["host_allocator-advised.json.gz", "host_allocator.env"],
    ]
    assert files["naive"][1].read_text(encoding="utf-8") == "LD_PRELOAD=\n"


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_is_named_as_its_file_and_traces_a_size_it_has(name: str) -> None:
    benchmark = find_benchmark(name)

    assert benchmark.name == name
    assert benchmark.traced_size in benchmark.sizes
    assert len(benchmark.rules) > 0
