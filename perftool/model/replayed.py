"""What a report says of the replay of the recorded steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Together:
    """What a step would take with the fixes of all of ``codes``, by one replay."""

    codes: tuple[str, ...]
    step_ns: int


@dataclass(frozen=True)
class BoundShare:
    """How much of the critical path is of one kind: host, dataloader, kernel, memcpy, memset, collective or delay."""

    kind: str
    share: float


@dataclass(frozen=True)
class ReplayedRun:
    """The steps of ``ranks`` replayed together, joined by their collectives; numbers as in ``ReplayModel``."""

    ranks: int
    steps: int
    measured_step_ns: int | None
    replayed_step_ns: int | None
    error_ratio: float | None
    why_not: str | None


@dataclass(frozen=True)
class ReplayModel:
    """Some steps of ``rank``, replayed unchanged: ``replayed_step_ns`` for ``measured_step_ns``, ``error_ratio`` off.

    ``why_not`` is one sentence when nothing is predicted from it; the numbers are None when there is nothing to replay.
    ``best`` are the fix, the two and the three that give most together, as far as there are so many.
    ``bounds`` says who bounds the step, the largest share first; empty when nothing is predicted.
    """

    rank: int
    steps: int
    measured_step_ns: int | None
    replayed_step_ns: int | None
    error_ratio: float | None
    why_not: str | None
    together: Together | None = None
    best: tuple[Together, ...] = ()
    bounds: tuple[BoundShare, ...] = ()
