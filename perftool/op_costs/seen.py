"""Results of convolutions that a recording shows.

Before PyTorch 2 recordings hold no stride and padding, but the op of the gradients has input, filter and result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Shape = tuple[int, ...]
Results = Mapping[tuple[Shape, Shape], Shape | None]


def results(convolutions: Iterable[tuple[Shape, Shape, Shape]]) -> Results:
    """The shape of the result by those of input and filter; None where convolutions of these differ in it."""
    found: dict[tuple[Shape, Shape], Shape | None] = {}
    for x, weight, result in sorted(set(convolutions)):
        found[x, weight] = None if (x, weight) in found else result
    return found
