"""``benchmark --quick --validate`` measures, records or simulates in separate processes, and the rules judge the
result.

test_benchmarks.py runs the same cycle for every benchmark in less time, while this file runs it as users do. Nothing
asserts a time or a speed-up, because times measured on a busy machine prove nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from warm_python import warm_executable

pytest.importorskip("torch")

from perftool.bench import benchmark_names, find_benchmark
from perftool.proof import Request, prove

# The cheapest kind of benchmark: it is simulated, in separate processes. tests/test_proof.py covers a benchmark that is
# measured and recorded.
BRIEF = ("small_copies",)


@pytest.mark.parametrize("name", BRIEF)
def test_a_row(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", warm_executable(tmp_path))
    validates(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in benchmark_names() if name not in BRIEF])
def test_every_row(name: str, tmp_path: Path) -> None:
    validates(name, tmp_path)


def validates(name: str, folder: Path) -> None:
    benchmark = find_benchmark(name)

    result = prove(benchmark, Request("cpu", True, folder), lambda stage: None)

    reason = result.reason or ""
    assert result.status != "failed" or reason.startswith("the advised form is slower"), reason
    if result.proof is None:
        assert result.status == "skipped"
        assert reason == benchmark.unavailable()
    else:
        assert set(benchmark.rules) <= set(result.proof.fired_before)
        assert result.proof.fired_after == ()
        assert result.proof.simulated == (benchmark.script is not None)
