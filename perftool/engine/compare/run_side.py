"""Prepares one side of a comparison: a run that was just analysed, or read from a saved report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from perftool.engine.compare.op_totals import totals
from perftool.engine.compare.significance import FEWEST_STEPS
from perftool.engine.report.complete_steps import (
    counted,
    most_kernels_lost,
    mostly_incomplete,
    of_slowest_rank,
    recorded_per_step,
    warm_up_steps,
)
from perftool.model.diff import UNKNOWN, OpTotal, RunSide, Setting
from perftool.model.efficiency import OpRate
from perftool.model.inputs import InputFile
from perftool.model.iterations import ServingPhase
from perftool.model.metrics import metric_kinds
from perftool.model.modules import NO_MODULE, ModuleTime
from perftool.model.report import BREAKDOWN, Finding, Share, Step, StepSource


def run_side(
    name: str,
    steps: Iterable[Step],
    device_ops: Iterable[Share],
    ops: Iterable[Share],
    findings: Iterable[Finding],
    *,
    all_ops: bool = True,
    setting: Setting = UNKNOWN,
    rates: Iterable[OpRate] = (),
    device: str | None = None,
    served: Mapping[str, float] | None = None,
    modules: Sequence[ModuleTime] = (),
    steps_from: StepSource | None = None,
    step_unit: str | None = None,
    inputs: Iterable[InputFile] = (),
    recorded_ns: Mapping[int, int] | None = None,
    worked: tuple[int, ...] | None = None,
    lost_kernels: Mapping[int, float] | None = None,
    phases: Iterable[ServingPhase] = (),
) -> RunSide:
    """Return the run called ``name``, with its ``steps``. ``device_ops`` and ``ops`` are totals over complete steps.

    ``rates`` are the rates that ops reach on ``device``, and ``served`` is the result of ``served_numbers``.
    ``steps_from`` and ``step_unit`` say what separates steps. ``inputs`` are the files of the run. ``recorded_ns`` maps
    ranks to the lengths of their recordings, and ``lost_kernels`` maps ranks to the share of their kernel launches that
    have no device work. ``worked`` is the result of ``device_ranks`` (None if unknown). ``phases`` are those of a
    server.
    """
    steps = tuple(steps)
    complete = counted(steps)
    count = max(1, len(complete))
    per_rank = Counter(step.rank for step in complete)
    return RunSide(
        name=name,
        step_ns=tuple(step.dur_ns for step in of_slowest_rank(steps)),
        breakdown_ns={part: sum(step.parts_ns[part] for step in complete) / count for part in BREAKDOWN},
        device_ops=totals(device_ops, count),
        ops=totals(ops, count),
        findings=tuple(findings),
        all_ops=all_ops,
        setting=setting,
        rates=tuple(rates),
        device=device,
        served=served or {},
        modules=_modules(modules, complete),
        steps_from=steps_from,
        step_unit=step_unit,
        lost=(
            *filter(None, (read.loss for read in inputs)),
            *mostly_incomplete(steps),
            *most_kernels_lost(lost_kernels or {}),
        ),
        rank_steps={rank: per_rank[rank] for rank in sorted({step.rank for step in steps})},
        recorded_per_step_ns=recorded_per_step(steps, recorded_ns or {}),
        warm_up_steps=warm_up_steps(steps),
        with_warm_up_ns=recorded_per_step(steps, recorded_ns or {}, with_warm_up=True),
        device_ranks=worked,
        lost_kernels=lost_kernels or {},
        iteration_ns=mean_iterations(phases),
    )


def _modules(modules: Sequence[ModuleTime], steps: Sequence[Step]) -> tuple[OpTotal, ...]:
    """Return the work of each module without its submodules, per step of the rank that ran it."""
    count = max(1, sum(step.rank == module.rank for step in steps for module in modules[:1]))
    return tuple(OpTotal(module.path or NO_MODULE, module.own_ns / count, module.calls / count) for module in modules)


def mean_iterations(phases: Iterable[ServingPhase]) -> dict[str, float]:
    """Return the mean time of an iteration by phase, for each of ``phases`` with enough iterations to compare."""
    return {one.name: one.total_ns / one.iterations for one in phases if one.iterations >= FEWEST_STEPS}


def served_numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the known metrics in ``values`` that only a language-model server has, in report order."""
    known = ((kind.name, values.get(kind.name)) for kind in metric_kinds() if kind.serving)
    return {name: value for name, value in known if value is not None}


def device_ranks(busy_ns: Mapping[int, int | None], device: str | None) -> tuple[int, ...]:
    """Return the ranks with work on an accelerator, given the busy time of each rank and the type of the ``device``."""
    return tuple(sorted(rank for rank, ns in busy_ns.items() if ns is not None and device != "cpu"))


def setting_of(device: str | None, ranks: Iterable[int | None], world_size: int | None) -> Setting:
    """Return the setting of a run, from its report."""
    return Setting(device, tuple(sorted({rank for rank in ranks if rank is not None})), world_size)
