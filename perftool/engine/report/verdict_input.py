"""The inputs of the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perftool.engine.report.left import Left
from perftool.engine.report.long_calls import LongCalls
from perftool.engine.report.step_spread import StepSpread
from perftool.engine.report.unseen import Unseen
from perftool.model.inputs import InputFile
from perftool.model.memory import MemoryUse
from perftool.model.modules import ModuleTime, OpLoop, Part
from perftool.model.replayed import ReplayModel
from perftool.model.report import Cause, Finding, Metric, NotApplicable, Phase, Run, Share, Step
from perftool.model.rule import Rule


@dataclass(frozen=True, kw_only=True)
class OnCpu:
    """Facts and sentences that exist only for a run on a CPU; empty for other devices.

    ``enclosing``: a clause about the call that contains most of the largest op.
    ``repeated``: the share of its peak that the largest op reached when it was repeated after the recording.
    ``by_function``, ``optimizer``: sentences about the user's functions and about the optimizer.
    ``moves``: a sentence about copies and fills.
    ``apart``: a sentence about the time before the first step and after the last.
    ``narrow``: a sentence about the call that contains all steps of a short recording.
    ``one_off``: a sentence about a long call that only one of a few steps makes.
    ``waiting``, ``growing``: sentences about a thread that waited for a core, and about a process that grew.
    ``lengthened``: a sentence about recorded steps that took more CPU time than earlier ones.
    ``spread``: how much the lengths of steps vary, and why.
    """

    enclosing: str = ""
    repeated: float | None = None
    backward_passes: tuple[float, int] | None = None
    op_loop: OpLoop | None = None
    by_function: str = ""
    optimizer: str = ""
    moves: str = ""
    long_calls: LongCalls = field(default=LongCalls())
    apart: str = ""
    narrow: str = ""
    one_off: str = ""
    waiting: str = ""
    growing: str = ""
    lengthened: str = ""
    spread: StepSpread | None = None


@dataclass(frozen=True, kw_only=True)
class VerdictInput:
    """Everything that the first sentences of a report are derived from.

    ``reached``: the share of their roofline that matmuls reach; None if unknown.
    ``top_reached``: the share of its peak that the first of ``device_ops`` reaches; None if unknown.
    ``device``: the type of the device.
    ``passed_on``: a sentence about ranks that are late only because they wait for another rank.
    """

    summary: Mapping[str, Metric]
    rules: Sequence[Rule]
    not_applicable: Sequence[NotApplicable]
    inputs: Sequence[InputFile] = ()
    idle_causes: Sequence[Share] = ()
    findings: Sequence[Finding] = ()
    causes: Sequence[Cause] = ()
    device_ops: Sequence[Share] = ()
    steps: Sequence[Step] = ()
    reached: float | None = None
    model: ReplayModel | None = None
    phases: Sequence[Phase] = ()
    run: Run = field(default=Run(None))
    unseen: Unseen | None = None
    device: str | None = None
    left: Left | None = None
    top_reached: float | None = None
    passed_on: str = ""
    memory: Sequence[MemoryUse] = ()
    modules: tuple[ModuleTime, ...] = ()
    annotated: Sequence[Part] = ()
    called: Sequence[Part] = ()
    on_cpu: OnCpu = field(default=OnCpu())
