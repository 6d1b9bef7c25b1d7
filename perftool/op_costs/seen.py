"""Result shapes of the convolutions in a recording.

Recordings before PyTorch 2 lack stride and padding, but the gradient op has the shapes of input, filter and result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Shape = tuple[int, ...]
Results = Mapping[tuple[Shape, Shape], Shape | None]


def results(convolutions: Iterable[tuple[Shape, Shape, Shape]]) -> Results:
    """Result shape by input and filter shape; None where the same two shapes have different results."""
    found: dict[tuple[Shape, Shape], Shape | None] = {}
    for x, weight, result in sorted(set(convolutions)):
        found[x, weight] = None if (x, weight) in found else result
    return found
