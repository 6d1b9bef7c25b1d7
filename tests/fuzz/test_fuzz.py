"""A short round of fuzzing. ``python tests/fuzz/run.py`` continues for as long as you like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import CORPUS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import FREE, FREE_RUN, RUNS, SHAPES, Cost, cost_of, may_take, with_secrets
from targets import TARGETS, attempt

# Few examples, always the same ones, because ``run.py`` does the searching. Targets that run every rule get the fewest.
EXAMPLES = {"analysis": 2, "shapes": 1, "rule": 3, "cases": 2}


@pytest.mark.parametrize("name", TARGETS)
def test_readers_raise_only_our_errors(name: str) -> None:
    target = TARGETS[name]
    tried = []

    @settings(max_examples=EXAMPLES.get(name, 8), suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**31))
    def round_of(number: int) -> None:
        data = target.input(number)
        tried.append(len(data))
        attempt(target, data)

    round_of()
    assert tried


@pytest.mark.parametrize("name", CORPUS)
def test_inputs_that_once_broke_a_reader(name: str) -> None:
    target, data = CORPUS[name]
    attempt(TARGETS[target], data)


@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
@pytest.mark.parametrize("names", RUNS, ids=", ".join)
def test_hostile_shapes_cost_little_more_than_good_inputs(names: list[str], tmp_path: Path) -> None:
    if len(names) > 1:
        for rank, name in enumerate(names):
            (tmp_path / f"rank{rank}.json").write_bytes(SHAPES[name][2]())
        if cost_of(tmp_path).within(FREE_RUN):
            return
    for name in names:
        file, good, hostile = SHAPES[name]

        def cost(made: Callable[[], bytes], file: str = file) -> Cost:
            (tmp_path / "alone").mkdir(exist_ok=True)
            (tmp_path / "alone" / file).write_bytes(made())
            return cost_of(tmp_path / "alone" / file)

        took = cost(hostile)
        # Below this absolute limit, a comparison with a benign input is unnecessary.
        most = FREE if took.within(FREE) else may_take(cost(good))
        assert took.within(most), (name, took, most)


@pytest.mark.skipif(sys.platform != "linux", reason="needs resource limits")
def test_many_secrets_cost_no_more_than_few(tmp_path: Path) -> None:
    def cost(count: int) -> Cost:
        (tmp_path / "t.json").write_bytes(with_secrets(count))
        return cost_of(tmp_path / "t.json", f"annotate -q --redact -o {tmp_path}/drawn.json")

    took = cost(20_000)
    most = FREE if took.within(FREE) else may_take(cost(1))
    assert took.within(most), (took, most)
    assert (tmp_path / "drawn.json").stat().st_size > 100_000
