"""A short round of fuzzing; ``python tests/fuzz/run.py`` goes on for as long as you like, from a number given here."""

from __future__ import annotations

from random import Random

import pytest
from corpus import CORPUS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutate import mutated
from targets import TARGETS, attempt

# Those that run every rule or check a pack take long.
EXAMPLES = {"analysis": 3, "rule": 5, "cases": 5, "csv": 10}


@pytest.mark.parametrize("name", TARGETS)
def test_only_errors_that_users_can_read(name: str) -> None:
    target = TARGETS[name]
    tried = []

    @settings(max_examples=EXAMPLES.get(name, 25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**31))
    def round_of(number: int) -> None:
        data = mutated(Random(number), target.seeds)
        tried.append(len(data))
        attempt(target, data)

    round_of()
    assert tried


@pytest.mark.parametrize("name", CORPUS)
def test_what_broke_once(name: str) -> None:
    target, data = CORPUS[name]
    attempt(TARGETS[target], data)
