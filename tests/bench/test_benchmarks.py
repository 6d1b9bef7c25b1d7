"""Benchmarks that can be measured here: both forms give the same results, and leave traces that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark  # noqa: E402
from perftool.bench.harness.agreement import largest_error  # noqa: E402
from perftool.bench.harness.case import FORM_NAMES, Benchmark, Setting  # noqa: E402
from perftool.bench.harness.launch import Plan, measure, record_traces  # noqa: E402
from perftool.bench.harness.recording import record  # noqa: E402
from perftool.engine.analysis import analyze  # noqa: E402

# They start the compiler, for up to a minute; the test of `benchmark --validate` runs them too.
COMPILING = {"dynamic_shapes", "hpu_graphs", "loop_constants", "torch_compile"}


def measurable() -> list[Benchmark]:
    benchmarks = [find_benchmark(name) for name in benchmark_names() if name not in COMPILING]
    here = [each for each in benchmarks if "cpu" in each.devices and each.unavailable() is None]
    return [each for each in here if each.ranks == 1]


@pytest.fixture
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("benchmark_", measurable(), ids=lambda each: each.name)
def test_both_forms_agree_and_their_traces_can_be_read(benchmark_: Benchmark, tmp_path: Path) -> None:
    setting = Setting(benchmark_.sizes[0], torch.device("cpu"))
    results, steps = [], []
    for name in FORM_NAMES:
        form = benchmark_.build(name, setting)
        for _ in range(2):
            form.run()
        results.append([tensor.detach().clone() for tensor in form.result()])
        trace = tmp_path / f"{name}.json.gz"
        record(form.step or form.run, trace, benchmark_.traced_steps, setting.device)
        form.close()
        steps.append(len(analyze([str(trace)]).steps))

    assert largest_error(*results) <= benchmark_.tolerance
    assert steps == [benchmark_.traced_steps] * 2


def test_ranks_agree_and_each_leaves_a_trace(tmp_path: Path) -> None:
    # One for all that start processes which work together: the test of `benchmark --validate` runs the others.
    benchmark_ = find_benchmark("bucket_size")
    brief = Plan(rounds=3, seconds=0.2, pairs=1)
    measured = measure(benchmark_, benchmark_.sizes[0], "cpu", brief, tmp_path)
    recorded = record_traces(benchmark_, "cpu", brief, tmp_path)

    assert measured.max_error <= benchmark_.tolerance
    for paths in recorded.files.values():
        report = analyze([str(path) for path in paths])
        assert len(report.steps) == benchmark_.traced_steps * benchmark_.ranks
