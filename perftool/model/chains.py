"""Sequences of kernels that recur, as the layers of a model do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainPlace:
    """A kernel of a chain: the op that launched it (None where unknown), shapes of its inputs as JSON, its mean time
    ``ns`` in a repeat, its ``share`` of the chain, and the op's share of the device's best (None where unknown)."""

    op: str | None
    kernel: str
    input_dims: str | None
    ns: int
    share: float
    roofline_ratio: float | None


@dataclass(frozen=True)
class Chain:
    """A sequence of kernels that follows itself ``repeats`` times in a step of ``rank``: ``ns`` for one repeat, and the
    share of the work on its lane in that step that all repeats make up. It first starts at ``ts``, in ns.
    """

    rank: int
    repeats: int
    ns: int
    step_share: float
    ts: int
    places: tuple[ChainPlace, ...]
