"""The results of replaying the recorded steps, for reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Together:
    """The length of a step with the fixes of all rules in ``codes``, from a single replay."""

    codes: tuple[str, ...]
    step_ns: int


@dataclass(frozen=True)
class BoundShare:
    """The share of the critical path taken by one kind of task: host, dataloader, kernel, memcpy, memset, collective or
    delay."""

    kind: str
    share: float


@dataclass(frozen=True)
class ReplayedRun:
    """The steps of ``ranks`` ranks, replayed together with their collectives. The other fields are as in
    ``ReplayModel``."""

    ranks: int
    steps: int
    measured_step_ns: int | None
    replayed_step_ns: int | None
    error_ratio: float | None
    why_not: str | None


@dataclass(frozen=True)
class ReplayModel:
    """Some steps of ``rank``, replayed without changes: the mean step takes ``replayed_step_ns`` instead of
    ``measured_step_ns``, a relative error of ``error_ratio``.

    If the replay predicts nothing, ``why_not`` says why. If there is nothing to replay, the numbers are None.
    ``best`` contains the best single fix, pair and triple of fixes.
    ``bounds`` breaks down the critical path, largest share first. It is empty if nothing is predicted.
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
