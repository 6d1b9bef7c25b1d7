"""Sequences of kernels that recur, like the layers of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainPlace:
    """A kernel of a chain: the op that launched it (None where unknown), shapes of its inputs as JSON, its mean time
    ``ns`` in a repeat, its ``share`` of the chain, and the share of the device's best that the op reaches (None where
    unknown)."""

    op: str | None
    kernel: str
    input_dims: str | None
    ns: int
    share: float
    roofline_ratio: float | None


@dataclass(frozen=True)
class Chain:
    """A sequence of kernels that runs ``repeats`` times in a row in a step of ``rank``. One repeat takes ``ns``, and
    all repeats together make up ``step_share`` of the work on their lane in that step. The first starts at ``ts``, in
    ns.
    """

    rank: int
    repeats: int
    ns: int
    step_share: float
    ts: int
    places: tuple[ChainPlace, ...]
