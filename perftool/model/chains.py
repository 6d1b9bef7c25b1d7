"""Sequences of kernels that recur, like the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainPlace:
    """A kernel of a chain, and the op that launched it, with the shapes of its inputs as JSON (None where unknown).

    ``ns`` is the kernel's mean time in a repeat, ``share`` its share of the chain. ``roofline_ratio`` is the op's best
    possible time on the device divided by its actual time (None where unknown)."""

    op: str | None
    kernel: str
    input_dims: str | None
    ns: int
    share: float
    roofline_ratio: float | None


@dataclass(frozen=True)
class Chain:
    """A sequence of kernels that runs ``repeats`` times in a row in a step of ``rank``, first at ``ts`` (in ns). One
    repeat takes ``ns``; all repeats together make up ``step_share`` of the work on their lane in that step.
    """

    rank: int
    repeats: int
    ns: int
    step_share: float
    ts: int
    places: tuple[ChainPlace, ...]
