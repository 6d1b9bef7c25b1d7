"""What reports call the steps of a run."""

from __future__ import annotations

import pytest

from perftool.model.words import of_steps


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the 12 launches in each step", "the 12 launches in each iteration"),
        ("A step of 3 ms; the steps", "An iteration of 3 ms; the iterations"),
        ("Inside a training step, from step to step", "Inside an iteration, from iteration to iteration"),
        ("call optimizer.step() and step_ns, ProfilerStep#3", "call optimizer.step() and step_ns, ProfilerStep#3"),
        ("Steps as they are", "Iterations as they are"),
    ],
)
def test_a_server_runs_iterations(text: str, expected: str) -> None:
    assert of_steps(text, "iteration") == expected
    assert of_steps(text, "step") == text
