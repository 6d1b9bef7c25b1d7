"""Looks up the result shapes of convolutions in a recording.

PyTorch before version 2 does not record stride and padding, but the inputs of the gradient op show all three shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Shape = tuple[int, ...]
Results = Mapping[tuple[Shape, Shape], Shape | None]


def results(convolutions: Iterable[tuple[Shape, Shape, Shape]]) -> Results:
    """Return the shapes of results, by the shapes of input and filter, or None if different results have the same input
    and filter shapes."""
    found: dict[tuple[Shape, Shape], Shape | None] = {}
    for x, weight, result in sorted(set(convolutions)):
        found[x, weight] = None if (x, weight) in found else result
    return found
