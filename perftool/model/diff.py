"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perftool.model.report import Finding

Verdict = Literal["slower", "faster", "no significant change", "cannot be judged"]
ChangeKind = Literal["appeared", "vanished", "changed"]


@dataclass(frozen=True)
class OpTotal:
    """An op or kernel by its normalised ``name``: time in ns and calls, both per step."""

    name: str
    ns: float
    calls: float


@dataclass(frozen=True)
class Setting:
    """Where a run ran: its device (None when unknown), the ranks that were given, and how many it had."""

    device: str | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None


UNKNOWN = Setting()


@dataclass(frozen=True)
class RunSide:
    """What is compared of one run.

    ``step_ns`` has one length per step: of the slowest rank, because ranks wait for one another. ``breakdown_ns`` is
    the mean over the steps and ranks. ``all_ops`` is false when only the longest ops are known, as in a saved report.
    """

    name: str
    step_ns: tuple[int, ...]
    breakdown_ns: Mapping[str, float]
    device_ops: tuple[OpTotal, ...]
    ops: tuple[OpTotal, ...]
    findings: tuple[Finding, ...]
    all_ops: bool = True
    setting: Setting = UNKNOWN


@dataclass(frozen=True)
class Interval:
    """A relative change of the median step (0.05: 5 % slower) with the bounds of its confidence interval."""

    change: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class OpChange:
    """How an op differs between the runs; per step, None on the side that does not have it."""

    name: str
    kind: ChangeKind
    base: OpTotal | None
    new: OpTotal | None

    @property
    def delta_ns(self) -> float:
        return (self.new.ns if self.new else 0.0) - (self.base.ns if self.base else 0.0)


@dataclass(frozen=True)
class PartChange:
    """A part of the step breakdown, mean ns per step."""

    part: str
    base_ns: float
    new_ns: float


@dataclass(frozen=True)
class Comparison:
    """The result of ``diff``. ``interval`` is None, and ``reason`` says why, when there are too few steps.

    ``differences`` are those of the settings, in words. Findings that one side lacks and that stand just above the
    threshold of their rule on the other have crossed it, which little may do: they are neither new nor fixed.
    """

    base: RunSide
    new: RunSide
    verdict: Verdict
    interval: Interval | None
    reason: str | None
    parts: tuple[PartChange, ...]
    device_ops: tuple[OpChange, ...]
    ops: tuple[OpChange, ...]
    new_findings: tuple[Finding, ...]
    fixed_findings: tuple[Finding, ...]
    crossed_findings: tuple[Finding, ...] = ()
    differences: tuple[str, ...] = ()
