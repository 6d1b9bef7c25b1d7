"""Two runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perftool.model.efficiency import OpRate
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
    ``rates`` are what the ops that take most time on ``device`` reached.
    """

    name: str
    step_ns: tuple[int, ...]
    breakdown_ns: Mapping[str, float]
    device_ops: tuple[OpTotal, ...]
    ops: tuple[OpTotal, ...]
    findings: tuple[Finding, ...]
    all_ops: bool = True
    setting: Setting = UNKNOWN
    rates: tuple[OpRate, ...] = ()
    device: str | None = None


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
class RateChange:
    """An op that both runs have, by the name that all devices share. ``shapes`` are its inputs as JSON, empty where no
    shapes agree and all calls of the op stand together."""

    name: str
    shapes: str
    base: OpRate
    new: OpRate

    @property
    def factor(self) -> float | None:
        """How much longer a call takes in the new run; of all shapes together only their rates compare."""
        if not self.shapes or not self.base.kernel_ns or not self.new.calls:
            return None
        return (self.new.kernel_ns / self.new.calls) / (self.base.kernel_ns / self.base.calls)

    @property
    def delta_ns(self) -> float:
        """How much longer the calls of the base would take, by the time of a call or by the rate."""
        if self.factor is not None:
            return (self.factor - 1) * self.base.kernel_ns
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return (one / other - 1) * self.base.kernel_ns if one and other else 0.0


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
    rates: tuple[RateChange, ...] = ()
