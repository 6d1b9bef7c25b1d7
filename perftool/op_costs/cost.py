"""The cost of an op: its operations and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perftool.op_costs.call import Tensor

Unit = Literal["matrix", "vector"]


@dataclass(frozen=True)
class Cost:
    """Operations of one call, and the bytes that it reads and writes in device memory: each input and result once.

    A multiplication and an addition are two operations; ``flops`` is None where only the bytes are known. ``unit`` and
    ``dtype`` select the peak rate.
    """

    flops: int | None
    bytes: int
    unit: Unit
    dtype: str | None


def moved(*tensors: Tensor) -> int:
    """Bytes of all ``tensors`` together."""
    return total(tensors)


def total(tensors: Iterable[Tensor]) -> int:
    """Bytes of all ``tensors`` together."""
    return sum(one.bytes for one in tensors)
