"""The result of an analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

# Characters of a message that a notebook or debugger shows.
_LONGEST_REPR = 120
StepSource = Literal["iteration", "profiler", "optimizer", "annotation", "copies"]
BREAKDOWN = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_op", "other")
FrameName = Literal[
    "findings", "steps", "idle_causes", "top_device_ops", "top_ops", "engines", "recipes", "fallbacks", "inputs",
    "not_applicable",
]  # fmt: skip


@dataclass(frozen=True)
class Gain:
    """The time a fix would save per step, in ns and as a share of the usual step.

    A ``predicted`` gain is the difference of two replays of the recorded steps, a ``bound`` an upper bound from the
    evidence. ``bound_share`` is the upper bound, even if a prediction replaces it; None if there is no bound.
    """

    ns_per_step: int
    share_of_step: float
    kind: Literal["predicted", "bound"] = "bound"
    bound_share: float | None = None

    @property
    def most(self) -> float:
        """The upper bound as a share of the step, or the predicted share if there is no bound."""
        return self.share_of_step if self.bound_share is None else self.bound_share

    @property
    def worth(self) -> str:
        """The time as text, marked as a prediction or an upper bound."""
        text = format_ns(self.ns_per_step)
        return f"{text} (predicted)" if self.kind == "predicted" else f"up to {text}"


@dataclass(frozen=True)
class Finding:
    """One reported instance of a rule. ``evidence`` holds the numbers behind the message, as the rule found them.

    ``advice`` is false for findings that advise no change to the run, such as those about the trace. ``explained_by``
    is the code of the finding that explains the largest part of the lost time; the gain excludes that part.
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

    def __repr__(self) -> str:
        return f"<Finding {self.code}: {shorten(self.message, _LONGEST_REPR)}>"

    @property
    def late_ranks(self) -> list[int]:
        """The ranks that the others wait for; empty if the rule names none or, in a third-party rule, gives no list."""
        late = self.evidence.get("late_ranks")
        return late if isinstance(late, list) and all(isinstance(rank, int) for rank in late) else []


@dataclass(frozen=True)
class NotApplicable:
    """A rule that could not be checked, and the reason."""

    code: str
    reason: str


@dataclass(frozen=True)
class Metric:
    """A number of the summary; ``value`` is None, not 0, when the input lacks the signal."""

    name: str
    value: float | None
    unit: Unit
    numerator: float | None = None
    denominator: float | None = None


# The name of the only row in the table ``steps`` for a recording without steps.
WHOLE_TRACE = "whole trace"


@dataclass(frozen=True)
class Step:
    """A step. Its parts (see ``BREAKDOWN``) add up to ``dur_ns``. Collectives count as kernels in ``breakdown_ns``, but
    as communication in ``time_ns`` (empty when unknown). ``left_out`` says why a ``partial`` step is left out."""

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
        """The parts to show: ``time_ns`` where it is known."""
        return self.time_ns or self.breakdown_ns


@dataclass(frozen=True)
class Device:
    """The device of the run: hpu, cuda, rocm, xpu, mtia or cpu; None when the input does not show it."""

    type: str | None
    name: str | None
    count: int


@dataclass(frozen=True)
class StepLength:
    """The complete steps of one length, in a run with steps of two lengths."""

    steps: int
    shortest_ns: int
    longest_ns: int
    total_ns: int


@dataclass(frozen=True)
class Run:
    """A run. ``kind`` is None when the traces do not show it, ``world_size`` when they do not state it.

    ``steps_from``: the signal that separates steps; None without steps.
    ``steps_confidence``: how reliable that signal is.
    ``parallel``: how the ranks are split, as in ``tp 4 x dp 2``; None where their process groups do not show it.
    ``lengths``: the short and the long steps, over all ranks; empty unless steps have two lengths.
    ``mean_step_ns``: the mean step if the median describes few of the steps; else None.
    ``step_unit``: what makes a detected step (an annotation or the optimizer, and the number of its calls); None if no
    steps are detected.
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
        """The run's word for a step: step, or iteration."""
        return step_word(self.steps_from)


def step_word(steps_from: str | None) -> str:
    """The word for a step, given the signal ``steps_from`` that separates steps."""
    return "iteration" if steps_from == "iteration" else "step"


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait about equally long: ``ns_per_step`` on average, while nothing else runs on their devices."""

    ranks: tuple[int, ...]
    ns_per_step: int


@dataclass(frozen=True)
class GroupRole:
    """The process groups of one ``role``, of at most ``size`` ranks each. ``named`` is false for a role inferred from
    the shape of the groups.

    ``wire_ns`` is one group's transfer time per step, that is, the time of its collectives once all ranks have arrived.
    ``even_links`` is true if several groups have similar transfer times.
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
    """One kind of phase in a recording, over all ranks: start-up, warm-up, graph capture, profiler overhead,
    checkpoints, evaluation or the steady phase. ``evidence`` is the call, function or annotation that shows it."""

    name: str
    total_ns: int
    count: int
    share: float
    evidence: str | None


@dataclass(frozen=True)
class Cause:
    """A cause for a large part of the window in which the device does not compute.

    ``name``: a cause of idle time (the table gap_causes) or ``exposed_collectives``.
    ``text``: the cause as a clause.
    ``share``, ``ns_per_step``: its share of the window, and its mean time.
    ``codes``: the rules whose findings explain it.
    ``longest``: its longest stretch.
    ``within``: the program's annotation that contains most of it; None if none does.
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
    """The summary of a report: ``headline`` is one sentence, ``detail`` the time breakdown, and ``together`` the effect
    of all fixes that can be modelled (empty if none). ``context`` has sentences, the most important first: the signal
    that separates steps, the parts of the recording outside the steady phase, and the ops, modules and functions that
    take the most time. ``caveats`` qualifies the headline: what the steady steps lose, steps of two lengths, late or
    missing ranks, other load.

    ``causes`` lists the causes that take more than 20 % of the window, the largest first, whether or not a rule
    covers them.
    """

    headline: str
    detail: str
    causes: tuple[Cause, ...]
    together: str = ""
    context: tuple[str, ...] = ()
    caveats: str = ""

    @property
    def below(self) -> str:
        """The text below the headline."""
        return " ".join(filter(None, (self.caveats, self.detail, *self.context, self.together)))


@dataclass(frozen=True)
class Share:
    """A row of a ranking: the time of ``name`` in the window, in ns, its number of occurrences, and its share."""

    name: str
    total_ns: int
    count: int
    share: float


@dataclass(frozen=True)
class RankSummary:
    """One rank of the run. Times are totals over its window, None when its trace does not show them.

    ``host``: the machine that the rank ran on; None when unknown.
    ``status``: ok or unreadable.
    ``step_ns``: the median step.
    ``exposed_ns``: the exposed communication.
    ``waited_ns``: the part of collectives spent waiting for other ranks.
    ``offset_ns``: added to the rank's times, makes them comparable with those of the lowest rank, within ``spread_ns``.
    ``recorded_ns``: the time from the first to the last activity of the recording.
    ``lost_kernels_ratio``: the share of the kernel launches without device work in the median complete step.
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
    """One analysis. The rankings cover the window and all ranks, largest first."""

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

    @property
    def advice(self) -> tuple[Finding, ...]:
        """The findings that advise a change to the run, largest gain first."""
        return tuple(finding for finding in self.findings if finding.advice and not finding.suppressed)

    @property
    def per_step(self) -> str:
        """The unit of a gain: ``per step``; empty for a recording without steps, where gains are parts of the whole."""
        return f"per {self.run.step_word}" if self.summary["steps"].value else ""

    # Renders a report for notebooks. The Python API sets this hook, because reporters are in a higher layer.
    notebook_view: ClassVar[Callable[[Report], str] | None] = None

    def __repr__(self) -> str:
        name = self.inputs[0].path if self.inputs else "no input"
        more = f" and {len(self.inputs) - 1} more" if len(self.inputs) > 1 else ""
        count = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        return f"<Report on {name}{more}: {count}>"

    def _repr_html_(self) -> str | None:
        """A fragment of HTML for notebooks; None without the hook, so that notebooks show text."""
        view = type(self).notebook_view
        return None if view is None else view(self)

    def frame(self, name: FrameName) -> pd.DataFrame:
        """A part of the report (findings, steps and so on) as a DataFrame; times in ns.

        Nested values become separate columns: ``gain.ns_per_step``, ``breakdown_ns.kernel``.
        """
        import pandas as pd

        return pd.json_normalize([asdict(row) for row in getattr(self, name)])
