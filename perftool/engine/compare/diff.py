"""Compares two runs: how they differ, and whether it matters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from perftool.engine.analysis import Run
from perftool.engine.compare.fusions import fusion_changes
from perftool.engine.compare.op_rates import rate_changes
from perftool.engine.compare.run_side import device_ranks, run_side, served_numbers, setting_of
from perftool.engine.compare.settings import differences, named
from perftool.engine.compare.significance import FEWEST_STEPS, change_of_median, verdict_on
from perftool.engine.compare.thresholds import is_near
from perftool.engine.report.complete_steps import MOST_LOST_KERNELS, lost_time, lost_to_warm_up, slow_iterations
from perftool.engine.report.overview import DEVICE_OPS, OPS, shares
from perftool.engine.report.portable import make_portable, shown_paths
from perftool.engine.rules.fingerprint import fingerprint
from perftool.errors import PerfToolError
from perftool.model.diff import ChangeKind, Comparison, NumberChange, OpChange, OpTotal, PartChange, RunSide
from perftool.model.report import BREAKDOWN, Finding
from perftool.model.rule import Rule
from perftool.units import format_ratio, quantity

# Ops and modules are listed as changed if their time changed by at least this share of the step.
_LEAST_SHARE = 0.01
_FAIL_IF = re.compile(r"slower:(\d+(?:\.\d+)?)%")

# For each value of ``steps_from``, a clause that says how a run's steps were found.
_SEPARATED: Mapping[str, str] = {
    "iteration": "each iteration of a server is a step",
    "profiler": "the profiler marks steps",
    "optimizer": "each step ends with a call to the optimizer",
    "annotation": "each step begins with a recurring annotation",
    "copies": "each step begins where inputs are copied to the device",
}


def side_of(path: str, run: Run, root: Path) -> RunSide:
    """Return one side of the comparison: the ``run`` at ``path``, with paths relative to ``root``. Raise InputError."""
    report = make_portable(run.report, shown_paths([read.path for read in run.report.inputs], root))
    device_ops, ops = shares(run.store, DEVICE_OPS), shares(run.store, OPS)
    setting = setting_of(
        report.device.name or report.device.type,
        [read.rank for read in report.inputs if read.kind == "trace"],
        report.run.world_size,
    )
    return run_side(
        path, report.steps, device_ops, ops, report.findings, setting=setting,
        rates=report.efficiency.ops if report.efficiency else (), device=report.device.name,
        served=served_numbers({name: metric.value for name, metric in report.summary.items()}), modules=report.modules,
        steps_from=report.run.steps_from, step_unit=report.run.step_unit, inputs=report.inputs,
        recorded_ns={one.rank: one.recorded_ns for one in report.ranks if one.recorded_ns is not None},
        worked=device_ranks({one.rank: one.busy_ns for one in report.ranks}, report.device.type),
        lost_kernels={one.rank: one.lost_kernels_ratio for one in report.ranks if one.lost_kernels_ratio is not None},
        phases=report.serving.phases if report.serving else (),
    )  # fmt: skip


def compare(base: RunSide, new: RunSide, rules: Sequence[Rule] = ()) -> Comparison:
    """Compare ``new`` with ``base``. ``rules`` are the rules that produced the findings of both."""
    interval = change_of_median(base.step_ns, new.step_ns)
    few = min(len(base.step_ns), len(new.step_ns))
    reason = None if interval else "the median step of the base run has length 0"
    if few < FEWEST_STEPS:
        reason = f"{quantity(few, 'step is', 'steps are')} too few; each side needs at least {FEWEST_STEPS}"
    floor = _LEAST_SHARE * median(base.step_ns) if base.step_ns else 0.0
    known, seen = _keyed(base.findings), _keyed(new.findings)
    by_code = {rule.code: rule for rule in rules}
    appeared = [finding for key, finding in seen.items() if key not in known]
    vanished = [finding for key, finding in known.items() if key not in seen]
    crossed = [finding for finding in (*vanished, *appeared) if is_near(finding, by_code.get(finding.code))]
    return Comparison(
        base=base,
        new=new,
        verdict=verdict_on(interval),
        interval=interval,
        reason=reason,
        parts=tuple(PartChange(part, base.breakdown_ns[part], new.breakdown_ns[part]) for part in BREAKDOWN),
        device_ops=_changes(base.device_ops, new.device_ops, floor, base.all_ops, new.all_ops),
        ops=_changes(base.ops, new.ops, floor, base.all_ops, new.all_ops),
        modules=_module_changes(base.modules, new.modules, floor),
        new_findings=tuple(finding for finding in appeared if finding not in crossed),
        fixed_findings=tuple(finding for finding in vanished if finding not in crossed),
        crossed_findings=tuple(crossed),
        differences=tuple(differences(base.setting, new.setting)),
        rates=rate_changes(base.rates, new.rates),
        fusions=fusion_changes(base.rates, new.rates, max(len(base.step_ns), 1), max(len(new.step_ns), 1)),
        served=tuple(
            NumberChange(name, base.served[name], new.served[name]) for name in base.served if name in new.served
        ),
    )


def parse_fail_if(text: str) -> float:
    """Parse a limit such as ``slower:5%`` into a share. Raise PerfToolError for anything else, and for
    an infinite limit, which no run exceeds."""
    found = _FAIL_IF.fullmatch(text.strip())
    if found is None:
        raise PerfToolError(f"--fail-if {text!r}: expected slower:N%, such as slower:5%")
    limit = float(found[1]) / 100
    if math.isinf(limit):
        raise PerfToolError("--fail-if: the limit is too large")
    return limit


def fails(comparison: Comparison, limit: float) -> bool:
    """Whether steps are slower by more than ``limit``, even at the lower end of the interval."""
    return comparison.interval is not None and comparison.interval.low > limit


def unjudged(comparison: Comparison, limit: float) -> str:
    """Return why ``--fail-if`` with this ``limit`` cannot judge the new run, or "" if it can. The check must not pass
    a run that it cannot judge."""
    base, new = comparison.base, comparison.new
    for side, which in ((base, "base"), (new, "new")):
        if side.lost:
            more = f" (and {len(side.lost) - 1} more)" if side.lost[1:] else ""
            return f"the {which} run is incomplete, so it is not judged: {side.lost[0]}{more}"
        # A step lasts until its kernels end. If a kernel runs until the recording ends, later steps have length 0.
        if not median(side.step_ns or [0]):
            return f"the {which} run has no complete step, so it is not judged"
    # Saved reports from earlier versions do not say how steps were found.
    if base.steps_from and new.steps_from and base.steps_from != new.steps_from:
        ways = f"in the base run {_SEPARATED[base.steps_from]}, in the new run {_SEPARATED[new.steps_from]}"
        return f"the runs are not judged, because their steps were detected in different ways: {ways}"
    if base.step_unit and new.step_unit and base.step_unit != new.step_unit:
        units = f"in the base run a step is {base.step_unit}, in the new run {new.step_unit}"
        return f"the runs are not judged, because their steps differ: {units}"
    for one, other, what in (
        (base.setting.ranks, new.setting.ranks, ""),
        (_stepped(base), _stepped(new), "complete steps of "),
        (base.device_ranks, new.device_ranks, "device work of "),
    ):
        # Saved reports from early versions do not say which ranks have device work.
        if one is not None and other is not None and one != other:
            ranks = f"base has {what}{named(one)}, new has {what}{named(other)}"
            return f"the ranks differ, so the runs are not judged: {ranks}"
    for side, which in ((base, "base"), (new, "new")) if len(base.rank_steps) > 1 else ():
        if few := [rank for rank, steps in side.rank_steps.items() if steps < FEWEST_STEPS]:
            each = f"each rank needs at least {FEWEST_STEPS} complete steps"
            has = "has" if len(few) == 1 else "have"
            return f"the {which} run is not judged: {each}, and {named(few)} {has} fewer"
    if comparison.reason:
        return f"the runs are not judged: {comparison.reason}"
    return "" if fails(comparison, limit) else _kernels_lost(base, new, limit) or _time_lost(base, new, limit)


def _kernels_lost(base: RunSide, new: RunSide, limit: float) -> str:
    """Return a sentence if the new run lost so many more kernels than the base that this could hide a slowdown of
    ``limit``; otherwise, return an empty string.

    A step lasts until its kernels end, so it seems too short if its kernels were not recorded.
    """
    for rank, after in new.lost_kernels.items():
        before = base.lost_kernels.get(rank)
        if before is not None and after - before > max(limit, MOST_LOST_KERNELS):
            return (
                f"the new run is not judged: rank {rank} lacks {format_ratio(after)} of the kernels that its steps "
                f"launched (base: {format_ratio(before)})"
            )
    return ""


def _time_lost(base: RunSide, new: RunSide, limit: float) -> str:
    """Return a sentence if the new run lost time that its median step does not show; otherwise, return an empty
    string."""
    before, after = base.recorded_per_step_ns, new.recorded_per_step_ns
    if base.steps_from == "iteration":
        return slow_iterations("the new run", new.iteration_ns, "base:", base.iteration_ns, limit)
    if before is None or after is None:
        return ""
    if lost := lost_time("the new run", after, "base:", before, limit):
        return lost
    before, after = base.with_warm_up_ns or before, new.with_warm_up_ns or after
    return lost_to_warm_up("the new run", new.warm_up_steps, after, "base:", base.warm_up_steps, before, limit)


def _stepped(side: RunSide) -> tuple[int, ...]:
    """Return the ranks with complete steps."""
    return tuple(rank for rank, steps in side.rank_steps.items() if steps)


def _changes(
    base: Sequence[OpTotal], new: Sequence[OpTotal], floor: float, base_all: bool, new_all: bool
) -> tuple[OpChange, ...]:
    """Return the ops that appeared, vanished or changed by at least ``floor`` ns per step, largest change first.

    A saved report lists only the longest ops. An op that is missing from it does not count as appeared or vanished,
    because it may just be too short for the list.
    """
    before, after = {op.name: op for op in base}, {op.name: op for op in new}
    changes = []
    for name in before | after:
        one, other = before.get(name), after.get(name)
        kind: ChangeKind = "appeared" if one is None else "vanished" if other is None else "changed"
        known = {"appeared": base_all, "vanished": new_all, "changed": True}[kind]
        change = OpChange(name, kind, one, other)
        if known and (kind != "changed" or abs(change.delta_ns) >= max(floor, 1)):
            changes.append(change)
    return tuple(sorted(changes, key=lambda change: (-abs(change.delta_ns), change.name)))


def _module_changes(base: Sequence[OpTotal], new: Sequence[OpTotal], floor: float) -> tuple[OpChange, ...]:
    """Return the modules whose self time differs by at least ``floor`` ns per step, or none if the runs have no module
    in common.

    A recording without stacks has no modules. ``floor`` also applies to modules that appeared or vanished, because
    reports do not list short modules.
    """
    if {module.name for module in base}.isdisjoint(module.name for module in new):
        return ()
    return tuple(change for change in _changes(base, new, floor, True, True) if abs(change.delta_ns) >= max(floor, 1))


def _keyed(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the findings by fingerprint, without file names, because these differ between runs."""
    return {fingerprint(finding.code, finding.subject): finding for finding in findings}
