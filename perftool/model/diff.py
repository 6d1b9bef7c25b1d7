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
    """The time (in ns) and calls per step of an op or kernel, identified by its normalised ``name``."""

    name: str
    ns: float
    calls: float


@dataclass(frozen=True)
class Setting:
    """The conditions of a run: its device, the ranks with a trace, and the total number of ranks."""

    device: str | None = None
    ranks: tuple[int, ...] = ()
    world_size: int | None = None


UNKNOWN = Setting()


@dataclass(frozen=True)
class RunSide:
    """The data about one run that a comparison uses.

    ``step_ns``: lengths of the complete steps of the slowest rank (by median step), because ranks wait for one another.
    ``breakdown_ns``: the mean over the steps of all ranks.
    ``all_ops``: false if only the longest ops are known, as in a saved report.
    ``rates``: the rates that the longest ops reach on ``device``.
    ``served``: the metrics that only a language-model server has.
    ``modules``: the modules of one rank by path. Their times exclude submodules.
    ``steps_from``: the signal that separates steps; None if there are no steps.
    ``step_unit``: the calls that make up a step; None if the program marks its steps.
    ``lost``: one sentence for each input that was not read in full, and for each rank with mostly incomplete steps or
    mostly missing kernels.
    ``rank_steps``: the number of complete steps by rank.
    ``recorded_per_step_ns``: the length of the recording per step, excluding partial steps; None if unknown.
    ``warm_up_steps``: the number of warm-up steps, from the rank with the most.
    ``with_warm_up_ns``: like ``recorded_per_step_ns``, but counts the warm-up steps after the start-up.
    ``device_ranks``: the ranks with work on an accelerator; None if unknown.
    ``lost_kernels``: by rank, if known, the share of kernel launches that have no device work in a median step.
    ``iteration_ns``: the mean time of a server's iteration, by phase.
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
    warm_up_steps: int = 0
    with_warm_up_ns: float | None = None
    device_ranks: tuple[int, ...] | None = None
    lost_kernels: Mapping[int, float] = field(default_factory=dict)
    iteration_ns: Mapping[str, float] = field(default_factory=dict)

    @property
    def step_word(self) -> str:
        """The run's word for a step."""
        return step_word(self.steps_from)


@dataclass(frozen=True)
class Interval:
    """The relative change of the median step (0.05 means 5 % slower), with its confidence interval."""

    change: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class OpChange:
    """How an op changed between the runs. ``base`` or ``new`` is None if that run does not have the op."""

    name: str
    kind: ChangeKind
    base: OpTotal | None
    new: OpTotal | None

    @property
    def delta_ns(self) -> float:
        return (self.new.ns if self.new else 0.0) - (self.base.ns if self.base else 0.0)


@dataclass(frozen=True)
class RateChange:
    """How the rates of an op changed between the runs. ``name`` omits library or device prefixes.

    ``shapes`` contains the input shapes as JSON. If the runs have no shapes in common, it is empty, and the rates cover
    all calls of the op.
    """

    name: str
    shapes: str
    base: OpRate
    new: OpRate

    @property
    def factor(self) -> float | None:
        """The mean time of a call in the new run, divided by the mean time in the base run; None if the shapes
        differ."""
        if not self.shapes or not self.base.kernel_ns or not self.base.calls or not self.new.calls:
            return None
        return (self.new.kernel_ns / self.new.calls) / (self.base.kernel_ns / self.base.calls)

    @property
    def by_peaks(self) -> float | None:
        """The part of ``factor`` that is due to the different peaks of the devices; None if unknown."""
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return self.factor * other / one if self.factor and one and other else None

    @property
    def by_kernels(self) -> float | None:
        """The rest of ``factor``: the share of the roofline reached in the base run, divided by that in the new run;
        None if unknown."""
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return one / other if self.factor and one and other else None

    @property
    def delta_ns(self) -> float:
        """How much longer the calls of the base run would take in the new run, in ns; 0 if unknown."""
        if self.factor is not None:
            return (self.factor - 1) * self.base.kernel_ns
        one, other = self.base.roofline_ratio, self.new.roofline_ratio
        return (one / other - 1) * self.base.kernel_ns if one and other else 0.0


@dataclass(frozen=True)
class FusedSide:
    """The ops that do the work in one run, with their total time in ns and number of calls per step."""

    names: tuple[str, ...]
    ns: float
    calls: float


@dataclass(frozen=True)
class FusionChange:
    """Work that one run (the base, if ``on_base`` is set) does in a fused op and the other run in several ops.
    ``closes`` says how to fuse it in the other run."""

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
    """The result of ``diff``. If ``interval`` is None, ``reason`` says why, for example that there are too few steps.

    ``differences`` describes how the settings differ. ``crossed_findings`` occur in only one run but are barely above
    the threshold of their rule. They count as neither new nor fixed, because noise may have caused them.
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
