"""``benchmark --quick --validate`` for every benchmark: its rules fire before and are quiet after, its results agree.

Nothing here asserts a time or a win: what is measured in seconds on a busy machine proves neither.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.proof import Request, prove

# They start a compiler in four processes each, which takes minutes on a busy machine.
SLOW = {"dynamic_shapes", "torch_compile"}


@pytest.mark.parametrize("name", benchmark_names())
def test_the_loop_closes(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name in SLOW and not request.config.getoption("--all-benchmarks"):
        pytest.skip("compiles for minutes; --all-benchmarks runs it")
    benchmark = find_benchmark(name)

    result = prove(benchmark, Request("cpu", True, tmp_path), lambda stage: None)

    reason = result.reason or ""
    assert result.status != "failed" or reason.startswith("the advised form is slower"), reason
    if result.proof is None:
        assert result.status == "skipped"
        assert reason == benchmark.unavailable()
    else:
        assert set(benchmark.rules) <= set(result.proof.fired_before)
        assert result.proof.fired_after == ()
        assert result.proof.simulated == (benchmark.script is not None)
