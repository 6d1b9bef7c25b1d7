"""The result of an analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from textwrap import shorten
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from perftool.model.chains import Chain
from perftool.model.choices import Confidence, Severity
from perftool.model.efficiency import Efficiency
from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.inputs import InputFile
from perftool.model.iterations import Serving
from perftool.model.memory import MemoryUse
from perftool.model.metrics import Unit
from perftool.model.modules import ModuleTime
from perftool.model.place import Location as Location
from perftool.model.place import Source as Source
from perftool.model.replayed import ReplayedRun, ReplayModel
from perftool.model.rule import Rule
from perftool.units import format_ns

if TYPE_CHECKING:
    import pandas as pd

# The longest message, in characters, that a notebook or debugger shows.
_LONGEST_REPR = 120
GainKind = Literal["predicted", "tried", "bound"]
StepSource = Literal["iteration", "profiler", "optimizer", "annotation", "copies"]
BREAKDOWN = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_op", "other")
FrameName = Literal[
    "findings", "steps", "idle_causes", "top_device_ops", "top_ops", "engines", "recipes", "fallbacks", "inputs",
    "not_applicable",
]  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """The time a fix would save per step, in ns and as a share of the typical step.

    A ``predicted`` gain is the difference between two replays of the recorded steps. A ``tried`` gain was measured:
    `record` applied the change to a copy of the program's models. A ``bound`` is an upper bound from the evidence.
    ``bound_share`` is that bound as a share of the step, even if a prediction or a trial replaces it. It is None if
    there is no bound.
    """

    ns_per_step: int
    share_of_step: float
    kind: GainKind = "bound"
    bound_share: float | None = None

    @property
    def most(self) -> float:
        """The upper bound as a share of the step, or the gain itself if there is no bound."""
        return self.share_of_step if self.bound_share is None else self.bound_share

    @property
    def worth(self) -> str:
        """The time as text, marked as a prediction, a trial or an upper bound."""
        text = format_ns(self.ns_per_step)
        return f"up to {text}" if self.kind == "bound" else f"{text} ({self.kind})"


@dataclass(frozen=True)
class Overlap:
    """The ``code`` of a finding whose gain counts the same time as the gain of another finding. If ``certain`` is
    false, the two gains may be disjoint."""

    code: str
    certain: bool


@dataclass(frozen=True)
class Finding:
    """One reported instance of a rule. ``evidence`` contains the numbers behind the message, as the query returns them.

    ``advice`` is false for findings that do not suggest a change to the run, such as those about the trace.
    ``explained_by`` is the code of the finding that explains the largest part of the lost time. The gain excludes that
    part. ``overlaps`` lists larger findings whose gains count the same time, so the gains must not be added up.
    ``fix_gain`` is the gain of all findings of the rule with the same fix on the rank, if there are several and their
    times are known to be disjoint.
    """

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    subject: str
    message: str
    why: str
    fix: str
    rank: int | None
    location: Location
    related: tuple[Location, ...]
    evidence: Mapping[str, Any]
    gain: Gain | None
    fingerprint: str
    benchmark: str | None
    url: str | None = None
    suppressed: bool = False
    path: str | None = None
    advice: bool = True
    short_fix: str = ""
    explained_by: str | None = None
    overlaps: tuple[Overlap, ...] = ()
    fix_gain: Gain | None = None

    def __repr__(self) -> str:
        return f"<Finding {self.code}: {shorten(self.message, _LONGEST_REPR)}>"

    @property
    def whole_gain(self) -> Gain | None:
        """The total gain of the findings with the same fix, if known; otherwise the finding's own gain."""
        return self.fix_gain or self.gain

    @property
    def late_ranks(self) -> list[int]:
        """The ranks that others wait for, from the evidence; empty if the evidence has no valid list of ranks."""
        late = self.evidence.get("late_ranks")
        return late if isinstance(late, list) and all(isinstance(rank, int) for rank in late) else []


def included_in(first: Finding, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose time the total gain of ``first`` includes: ``first``, and others of its rank with its
    fix.
    """
    if not first.fix_gain:
        return [first]
    same = (first.code, first.rank, first.short_fix)
    return [first, *(one for one in findings if one is not first and (one.code, one.rank, one.short_fix) == same)]


def sum_of(findings: Iterable[Finding]) -> Gain | None:
    """Return the sum of the gains of ``findings``, or None if none has a gain. The sum is an upper bound if any gain is
    one."""
    gains = [found.gain for found in findings if found.gain]
    if not gains:
        return None
    least_certain: tuple[GainKind, ...] = ("bound", "predicted", "tried")
    kind = next(kind for kind in least_certain if any(one.kind == kind for one in gains))
    return Gain(sum(one.ns_per_step for one in gains), sum(one.share_of_step for one in gains), kind)


@dataclass(frozen=True)
class NotApplicable:
    """A rule that could not be checked, and the reason."""

    code: str
    reason: str


@dataclass(frozen=True)
class Metric:
    """A number in the summary. ``value`` is None, not 0, if the input lacks the signal."""

    name: str
    value: float | None
    unit: Unit
    numerator: float | None = None
    denominator: float | None = None


# If a recording has no steps, the table ``steps`` has a single row with this name.
WHOLE_TRACE = "whole trace"


@dataclass(frozen=True)
class Step:
    """A step. Its parts (see ``BREAKDOWN``) add up to ``dur_ns``. Collectives count as kernels in ``breakdown_ns``, but
    as communication in ``time_ns``, which is empty if unknown. ``left_out`` says why a ``partial`` step is excluded."""

    rank: int
    name: str
    ts_ns: int
    dur_ns: int
    breakdown_ns: Mapping[str, int]
    partial: bool
    left_out: str | None = None
    time_ns: Mapping[str, int] = field(default_factory=dict)

    @property
    def parts_ns(self) -> Mapping[str, int]:
        """The parts to show: ``time_ns`` if known, otherwise ``breakdown_ns``."""
        return self.time_ns or self.breakdown_ns


@dataclass(frozen=True)
class Device:
    """The device of the run. ``type`` is hpu, cuda, rocm, xpu, mtia or cpu, or None if the input does not show it."""

    type: str | None
    name: str | None
    count: int


@dataclass(frozen=True)
class StepLength:
    """Either the short or the long complete steps of a run whose steps have two lengths."""

    steps: int
    shortest_ns: int
    longest_ns: int
    total_ns: int


@dataclass(frozen=True)
class Run:
    """A run. ``kind`` and ``world_size`` are None if the traces do not show them.

    ``steps_from``: the signal that separates steps; None if there are no steps.
    ``steps_confidence``: how reliable that signal is.
    ``parallel``: how the ranks are split, such as ``tp 4 x dp 2``; None if the process groups do not show it.
    ``lengths``: the short and the long steps, over all ranks; empty unless steps have two lengths.
    ``mean_step_ns``: the mean step if the steps are uneven, so that their median is not typical; otherwise None.
    ``step_unit``: the calls that make up a step, such as ``10 calls of the optimizer``; None if the program marks its
    steps.
    """

    kind: Literal["training", "inference", "serving"] | None
    world_size: int | None = None
    steps_from: StepSource | None = None
    steps_confidence: Confidence | None = None
    parallel: str | None = None
    lengths: tuple[StepLength, ...] = ()
    mean_step_ns: int | None = None
    step_unit: str | None = None

    @property
    def step_word(self) -> str:
        """The run's word for a step: ``step`` or ``iteration``."""
        return step_word(self.steps_from)


def step_word(steps_from: str | None) -> str:
    """Return the word for a step in a run whose steps are separated by the signal ``steps_from``."""
    return "iteration" if steps_from == "iteration" else "step"


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait about equally long: ``ns_per_step`` on average, while nothing else runs on their devices."""

    ranks: tuple[int, ...]
    ns_per_step: int


@dataclass(frozen=True)
class GroupRole:
    """The process groups that share a ``role``. The largest group has ``size`` ranks. ``named`` is false if the role
    was inferred from the shape of the groups.

    ``wire_ns`` is the transfer time per step of the slowest group: how long its collectives take once all ranks have
    arrived. ``even_links`` is true if there are several groups and their transfer times are similar.
    """

    role: str
    size: int
    groups: int
    named: bool
    wire_ns: int
    waiting: tuple[Waiting, ...]
    even_links: bool = False


@dataclass(frozen=True)
class Phase:
    """All phases of one kind, over all ranks: start-up, warm-up, graph capture, profiler overhead, checkpoints,
    evaluation or the steady phase. ``evidence`` is the call, function or annotation that identifies the phase."""

    name: str
    total_ns: int
    count: int
    share: float
    evidence: str | None


@dataclass(frozen=True)
class Cause:
    """A reason why the device does not compute for a large part of the window.

    ``name``: a cause of idle time (the table gap_causes) or ``exposed_collectives``. ``text``: the cause as a clause.
    ``share``, ``ns_per_step``: its share of the window, and its mean time per step. ``codes``: the rules whose findings
    explain it. ``longest``: its longest stretch. ``within``: the program's annotation that contains most of it; None if
    there is no such annotation.
    """

    name: str
    text: str
    share: float
    ns_per_step: int
    codes: tuple[str, ...]
    longest: Location | None
    within: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The summary of a report.

    ``headline``: one sentence.
    ``detail``: the time breakdown.
    ``causes``: all causes that take more than 20 % of the window, largest first, whether or not a rule covers them.
    ``together``: the effect of all fixes that can be modelled; empty if there are none.
    ``context``: further sentences, most important first: the signal that separates steps, the parts of the recording
    outside the steady phase, and the ops, modules and functions that take the most time.
    ``steady``: if the headline is about a phase that does not recur, a sentence about the steady steps.
    ``caveats``: sentences that qualify the other ones: steps of two lengths, late or missing ranks, other load on the
    machine.
    """

    headline: str
    detail: str
    causes: tuple[Cause, ...]
    together: str = ""
    context: tuple[str, ...] = ()
    steady: str = ""
    caveats: str = ""

    @property
    def below(self) -> str:
        """The text below the headline."""
        parts = (self.steady, self.detail, *self.context, self.together, self.caveats)
        return " ".join(filter(None, parts))


@dataclass(frozen=True)
class Share:
    """A row in a ranking: an item with its total time in the window (in ns), its count and its share."""

    name: str
    total_ns: int
    count: int
    share: float


@dataclass(frozen=True)
class RankSummary:
    """One rank of the run. Times are totals over its window, or None if its trace does not show them.

    ``host``: the machine that the rank ran on; None if unknown.
    ``status``: ok or unreadable.
    ``step_ns``: the median step.
    ``exposed_ns``: the exposed communication.
    ``waited_ns``: the part of the collective time spent waiting for other ranks.
    ``offset_ns``: the time to add to the rank's times to align them with the lowest rank, accurate to ``spread_ns``.
    ``recorded_ns``: the time from the first to the last activity in the recording.
    ``lost_kernels_ratio``: the share of kernel launches that have no device work in the median complete step.
    """

    rank: int
    host: str | None
    status: str
    steps: int
    step_ns: int | None
    window_ns: int | None
    busy_ns: int | None
    idle_ns: int | None
    compute_ns: int | None
    collective_ns: int | None
    exposed_ns: int | None
    waited_ns: int | None
    offset_ns: int | None
    spread_ns: int | None
    recorded_ns: int | None = None
    lost_kernels_ratio: float | None = None


@dataclass(frozen=True)
class Report:
    """The result of one analysis. Rankings cover the window and all ranks, and list the largest first.

    ``omitted``: sentences about files that were left out although the user did not ask for that, such as other
    recordings in the folder.
    """

    inputs: tuple[InputFile, ...]
    device: Device
    summary: Mapping[str, Metric]
    steps: tuple[Step, ...]
    idle_causes: tuple[Share, ...]
    top_device_ops: tuple[Share, ...]
    top_ops: tuple[Share, ...]
    engines: tuple[Engine, ...]
    recipes: tuple[Recipe, ...]
    fallbacks: tuple[Fallback, ...]
    findings: tuple[Finding, ...]
    not_applicable: tuple[NotApplicable, ...]
    verdict: Verdict
    run: Run = field(default=Run(None))
    rules: tuple[Rule, ...] = field(default=())
    ranks: tuple[RankSummary, ...] = field(default=())
    model: ReplayModel | None = None
    replayed_run: ReplayedRun | None = None
    efficiency: Efficiency | None = None
    phases: tuple[Phase, ...] = field(default=())
    serving: Serving | None = None
    groups: tuple[GroupRole, ...] = field(default=())
    chains: tuple[Chain, ...] = field(default=())
    modules: tuple[ModuleTime, ...] = field(default=())
    memory: tuple[MemoryUse, ...] = field(default=())
    omitted: tuple[str, ...] = field(default=())

    @property
    def advice(self) -> tuple[Finding, ...]:
        """The findings that advise a change to the run, largest gain first."""
        return tuple(finding for finding in self.findings if finding.advice and not finding.suppressed)

    @property
    def per_step(self) -> str:
        """The unit of gains, such as ``per step``; empty for a recording without steps, where gains are totals."""
        return f"per {self.run.step_word}" if self.summary["steps"].value else ""

    # Renders a report for notebooks. The Python API sets this hook, because reporters are in a higher layer.
    notebook_view: ClassVar[Callable[[Report], str] | None] = None

    def __repr__(self) -> str:
        name = self.inputs[0].path if self.inputs else "no input"
        more = f" and {len(self.inputs) - 1} more" if len(self.inputs) > 1 else ""
        count = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        return f"<Report on {name}{more}: {count}>"

    def _repr_html_(self) -> str | None:
        """Return an HTML fragment for notebooks, or None if the hook is not set, so that notebooks show text."""
        view = type(self).notebook_view
        return None if view is None else view(self)

    def frame(self, name: FrameName) -> pd.DataFrame:
        """Return a part of the report (findings, steps and so on) as a DataFrame. Times are in ns.

        Nested values become separate columns, such as ``gain.ns_per_step`` or ``breakdown_ns.kernel``.
        """
        import pandas as pd

        return pd.json_normalize([asdict(row) for row in getattr(self, name)])
