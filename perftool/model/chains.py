"""Recurring sequences of kernels, such as the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainPlace:
    """A kernel in a chain, and the op that launched it with its input shapes as JSON (None if unknown).

    ``ns`` is the kernel's mean time per repeat, and ``share`` is its share of the chain. ``roofline_ratio`` is the op's
    best possible time on the device divided by its actual time (None if unknown)."""

    op: str | None
    kernel: str
    input_dims: str | None
    ns: int
    share: float
    roofline_ratio: float | None


@dataclass(frozen=True)
class Chain:
    """A sequence of kernels that runs ``repeats`` times in a row in a step of ``rank``, first at ``ts`` (in ns).

    One repeat takes ``ns``. All repeats together take the share ``step_share`` of the work on their lane in that step.
    """

    rank: int
    repeats: int
    ns: int
    step_share: float
    ts: int
    places: tuple[ChainPlace, ...]
