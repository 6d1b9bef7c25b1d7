"""Comparison of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perftool.model.efficiency import OpRate
from perftool.model.report import Finding, StepSource, step_word

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
    """The conditions of a run: its device, the ranks whose traces are given, and its total number of ranks."""

    device: str | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None


UNKNOWN = Setting()


@dataclass(frozen=True)
class RunSide:
    """The data about one run that a comparison uses.

    ``step_ns``: lengths of the complete steps of the slowest rank (by median step), because ranks wait for one another.
    ``breakdown_ns``: the mean over the steps of all ranks.
    ``all_ops``: false when only the longest ops are known, as in a saved report.
    ``rates``: the rates that the ops with the most time reach on ``device``.
    ``served``: the metrics that only a language-model server has.
    ``modules``: the modules of one rank by path; their times exclude inner modules.
    ``steps_from``: the signal that separates steps; None without steps.
    ``step_unit``: the call that makes a detected step.
    ``lost``: a sentence for each input that was not read in full, and for each rank with most steps incomplete or most
    kernels missing.
    ``rank_steps``: the number of complete steps of each rank.
    ``recorded_per_step_ns``: the length of the recording per step, without the steps left out; None when unknown.
    ``device_ranks``: the ranks with work on an accelerator; None when unknown.
    ``lost_kernels``: for each rank where it is known, the share of kernel launches in its steps without device work.
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
    served: Mapping[str, float] = field(default_factory=dict)
    modules: tuple[OpTotal, ...] = ()
    steps_from: StepSource | None = None
    step_unit: str | None = None
    lost: tuple[str, ...] = ()
    rank_steps: Mapping[int, int] = field(default_factory=dict)
    recorded_per_step_ns: float | None = None
    device_ranks: tuple[int, ...] | None = None
    lost_kernels: Mapping[int, float] = field(default_factory=dict)

    @property
    def step_word(self) -> str:
        """The run's word for a step."""
        return step_word(self.steps_from)


@dataclass(frozen=True)
class Interval:
    """A relative change of the median step (0.05: 5 % slower) with the bounds of its confidence interval."""

    change: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class OpChange:
    """The change of an op between the runs, per step; None for a run without the op."""

    name: str
    kind: ChangeKind
    base: OpTotal | None
    new: OpTotal | None

    @property
    def delta_ns(self) -> float:
        return (self.new.ns if self.new else 0.0) - (self.base.ns if self.base else 0.0)


@dataclass(frozen=True)
class RateChange:
    """An op that both runs have, under a name without the device's library. ``shapes`` holds the shapes of its inputs
    as JSON; if the runs share no shapes, ``shapes`` is empty, and the rates cover all calls of the op.
    """

    name: str
    shapes: str
    base: OpRate
    new: OpRate

    @property
    def factor(self) -> float | None:
        """A call's mean time in the new run, divided by its mean time in the base run; None if shapes differ."""
        if not self.shapes or not self.base.kernel_ns or not self.base.calls or not self.new.calls:
            return None
        return (self.new.kernel_ns / self.new.calls) / (self.base.kernel_ns / self.base.calls)

    @property
    def by_peaks(self) -> float | None:
        """The part of ``factor`` due to the peaks of the devices; None if unknown."""
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return self.factor * other / one if self.factor and one and other else None

    @property
    def by_kernels(self) -> float | None:
        """The part of ``factor`` not due to the peaks: the base run's share of the roofline divided by the new
        run's."""
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return one / other if self.factor and one and other else None

    @property
    def delta_ns(self) -> float:
        """How much longer the base run's calls would take in the new run, in ns; 0 if unknown."""
        if self.factor is not None:
            return (self.factor - 1) * self.base.kernel_ns
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return (one / other - 1) * self.base.kernel_ns if one and other else 0.0


@dataclass(frozen=True)
class FusedSide:
    """The ops that do the work in one run, with their total time in ns and number of calls, both per step."""

    names: tuple[str, ...]
    ns: float
    calls: float


@dataclass(frozen=True)
class FusionChange:
    """Work that one run (the base, if ``on_base``) does in one op and the other in several. ``closes`` says how to fuse
    the work in the other run, too."""

    work: str
    on_base: bool
    fused: FusedSide
    apart: FusedSide
    closes: str


@dataclass(frozen=True)
class PartChange:
    """A part of the step breakdown in both runs, in mean ns per step."""

    part: str
    base_ns: float
    new_ns: float


@dataclass(frozen=True)
class NumberChange:
    """A metric of the summary in both runs."""

    name: str
    base: float
    new: float

    @property
    def ratio(self) -> float | None:
        """The relative change; None if the base is zero."""
        return self.new / self.base - 1 if self.base else None


@dataclass(frozen=True)
class Comparison:
    """The result of ``diff``. If ``interval`` is None, ``reason`` says why, such as too few steps.

    ``differences`` describes how the settings differ. A finding in only one run that is just above its rule's threshold
    is neither new nor fixed, because noise may have caused it.
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
    fusions: tuple[FusionChange, ...] = ()
    served: tuple[NumberChange, ...] = ()
    modules: tuple[OpChange, ...] = ()
