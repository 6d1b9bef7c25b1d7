"""The cost of an op: operations and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perftool.op_costs.call import Tensor

Unit = Literal["matrix", "vector"]


@dataclass(frozen=True)
class Cost:
    """The operations of one call, and the bytes that it reads and writes if it moves each input and result once.

    A multiply-add counts as two operations. ``flops`` is None if only the bytes are known. ``unit`` and ``dtype``
    select the peak rate.
    """

    flops: int | None
    bytes: int
    unit: Unit
    dtype: str | None


def moved(*tensors: Tensor) -> int:
    """Return the total size of ``tensors`` in bytes."""
    return total(tensors)


def total(tensors: Iterable[Tensor]) -> int:
    """Return the total size of ``tensors`` in bytes."""
    return sum(one.bytes for one in tensors)
