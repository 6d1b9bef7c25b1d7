"""How the results of two forms are compared."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from perftool.bench.harness.agreement import largest_error  # noqa: E402

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        ([1.0, -4.0], [1.5, -4.0], 0.125),
        ([0.0, 0.0], [0.0, 0.25], 0.25),
        ([1.0, NAN, INF], [1.0, NAN, INF], 0.0),
        ([1.0, INF], [1.5, INF], 0.5),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, INF], [1.0, -INF], INF),
        ([1.0], [NAN], INF),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference_is_relative_to_the_largest_value(
    expected: list[float], actual: list[float], error: float
) -> None:
    assert largest_error([torch.tensor(expected)], [torch.tensor(actual)]) == error


def test_other_shapes_and_other_numbers_of_tensors_never_agree() -> None:
    assert largest_error([torch.zeros(2, 1)], [torch.zeros(2)]) == INF
    assert largest_error([torch.zeros(2)], []) == INF


def test_the_worst_tensor_counts() -> None:
    assert largest_error([torch.ones(2), torch.ones(3)], [torch.ones(2), 3 * torch.ones(3)]) == 2.0
