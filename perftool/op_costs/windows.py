"""Windows that slide over the last dimensions of a tensor, as in convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.op_costs.call import Call, NoModelError


def each(call: Call, position: int, dimensions: int) -> list[int]:
    """Return the numbers at ``position``, one per dimension. A single number is repeated."""
    values = call.numbers(position)
    values = values * dimensions if len(values) == 1 else values
    if len(values) != dimensions:
        raise NoModelError(f"input {position} has neither 1 nor {dimensions} numbers")
    return values


def window_count(
    inside: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Return the number of window positions along each dimension (the formula of torch.nn.Conv2d)."""
    if min(stride) < 1:
        raise NoModelError("no stride")
    sizes = zip(inside, kernel, stride, padding, dilation, strict=True)
    return [max((size + 2 * pad - step * (k - 1) - 1) // by + 1, 0) for size, k, by, pad, step in sizes]
