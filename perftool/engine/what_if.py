"""Predicts the step time if fixes are applied, or if some of the work takes more or less time or is left out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perftool.engine.report import overview
from perftool.engine.report.compose import context_of
from perftool.engine.rules.evaluate import ask, make_finding
from perftool.engine.rules.predict import LARGEST_FACTOR, changes_of, lies_elsewhere, uneven_mean_ns
from perftool.engine.rules.predict_run import changes_of_ranks
from perftool.engine.rules.rule_queries import Context
from perftool.engine.rules.selection import Selector, redirect, require_known
from perftool.errors import PerfToolError, QueryError
from perftool.model.replayed import BoundShare
from perftool.model.rule import Rule
from perftool.model.what_if import Applied, FixBound, Path, PathTask, WhatIf
from perftool.model.words import of_steps
from perftool.replay.changes import Change
from perftool.replay.limits import MOST_RANKS
from perftool.replay.model import Model, model_of
from perftool.replay.path_rows import PathRow, bound_shares, path_rows
from perftool.replay.ranks.meetings import Less
from perftool.replay.ranks.model import run_model_of
from perftool.store.device import detect_device
from perftool.store.trace_store import TraceStore

_MOST_TASKS = 5
_ON_HOST = {"op": "cpu_op", "runtime": "runtime"}
_ON_DEVICE = ("kernel", "memcpy", "memset", "collective")
TASK_KINDS = (*_ON_HOST, *_ON_DEVICE)
_HOST = """
SELECT id, track, ts, "end" FROM slices
WHERE rank = $rank AND side = 'host' AND cat = $kind AND name GLOB $pattern AND ts < $end AND "end" > $begin
"""
_DEVICE = """
SELECT id, track, ts, "end" FROM device_ops
WHERE rank = $rank AND valid AND kind = $kind AND name GLOB $pattern AND ts < $end AND "end" > $begin
"""


@dataclass(frozen=True)
class Wanted:
    """A change to the tasks of one ``kind`` with names that match ``pattern``: the tasks' time is multiplied by
    ``factor``.

    If ``factor`` is None, the tasks and everything they launch are left out.
    """

    kind: str
    pattern: str
    factor: float | None = None

    @property
    def change(self) -> Literal["scale", "without"]:
        """The kind of change to the tasks."""
        return "without" if self.factor is None else "scale"

    def __str__(self) -> str:
        factor = "" if self.factor is None else f"={self.factor:g}"
        return f"{self.kind}:{self.pattern}{factor}"


def parse_without(text: str) -> Wanted:
    """Parse ``KIND:PATTERN``. Raise PerfToolError for an unknown kind or an empty pattern."""
    kind, _, pattern = text.partition(":")
    if kind not in TASK_KINDS or not pattern:
        raise PerfToolError(
            f"{text!r}: expected KIND:PATTERN, such as op:aten::item; kinds are {', '.join(TASK_KINDS)}"
        )
    return Wanted(kind, pattern)


def parse_scale(text: str) -> Wanted:
    """Parse ``KIND:PATTERN=FACTOR``. Raise PerfToolError for an invalid kind, pattern or factor."""
    tasks, _, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not tasks or not 0 <= value <= LARGEST_FACTOR:
        form = "KIND:PATTERN=FACTOR, such as kernel:*gemm*=0.5"
        raise PerfToolError(f"{text!r}: expected {form}, with a factor from 0 to {LARGEST_FACTOR:,}")
    wanted = parse_without(tasks)
    return Wanted(wanted.kind, wanted.pattern, value)


def rules_named(names: Sequence[str], rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules with these codes or names. A retired code or name resolves to its successor.

    Raise RuleError for an unknown name, and PerfToolError for an ambiguous one.
    """
    found = []
    for selector in redirect([Selector(name, "") for name in names], rules).selectors:
        rule = next((rule for rule in rules if selector.text in (rule.code, rule.name)), None)
        if rule is None:
            require_known(selector, rules)
            raise PerfToolError(f"{selector.text} matches several rules; --fix expects one code or name")
        found.append(rule)
    return tuple(dict.fromkeys(found))


def what_if(store: TraceStore, fixes: Sequence[Rule], tasks: Sequence[Wanted], rank: int | None = None) -> WhatIf:
    """Predict the step time of ``rank`` (by default the slowest) with ``fixes`` and the changes to ``tasks``.

    For a fix that cannot be replayed, the result contains the upper bound of its gain, if there is one. Raise
    PerfToolError if a rule finds nothing, if a change matches no task in the replayed steps, or if there is no such
    rank.
    """
    modelled = [rule for rule in fixes if rule.whatif is not None or rule.whatif_ranks is not None]
    context = context_of(store, tuple(overview.steps(store)), detect_device(store).type)
    bounds = tuple(_bound(store, rule, context) for rule in fixes if rule not in modelled)
    result = _replayed(store, modelled, tasks, rank, context)
    if result.why_not is not None:
        bounds += tuple(bound for rule in modelled if (bound := _bound_or_none(store, rule, context)))
    why = result.why_not and of_steps(result.why_not, context.step_word)
    return replace(result, bounds=(*bounds, *result.bounds), why_not=why, step_word=context.step_word)


def _bound(store: TraceStore, rule: Rule, context: Context) -> FixBound:
    bound = _bound_or_none(store, rule, context)
    if bound is None:
        raise PerfToolError(f"{rule.code} ({rule.name}): the rule finds nothing in this run")
    return bound


def _bound_or_none(store: TraceStore, rule: Rule, context: Context) -> FixBound | None:
    """Return the upper bound on the total gain of all findings of ``rule``, or None if it finds nothing."""
    if rule.sql is None:
        # Rules without a query report unreadable inputs and crashed rules.
        return FixBound(rule.code, None)
    answer = ask(store, rule, context)
    if answer.error:
        raise QueryError(f"{rule.code}: {answer.error}")
    found = [make_finding(rule, row, context) for row in answer.rows]
    gains = [finding.gain.ns_per_step for finding in found if finding.gain is not None]
    most = min(sum(gains), context.step_ns) if gains else None
    return FixBound(rule.code, most) if found else None


def _replayed(
    store: TraceStore, fixes: Sequence[Rule], tasks: Sequence[Wanted], rank: int | None, context: Context
) -> WhatIf:
    if any(rule.whatif_ranks is not None for rule in fixes):
        return _predict_run(store, fixes, tasks, rank, context)
    number, model = _chosen(store, rank)
    if isinstance(model, str):
        return WhatIf(number, 0, None, None, None, None, (), None, None, model)
    known = (number, model.steps, model.measured_ns, model.replayed_ns, model.error_ratio)
    if model.why_not:
        return WhatIf(*known, None, (), None, None, model.why_not)
    applied, changes, bounds = [], [], []
    for kind, what, made in [*_of_fixes(store, model, fixes, context), *_of_tasks(store, model, tasks)]:
        if not made:
            bounds.append(_bound(store, next(rule for rule in fixes if rule.code == what), context))
            continue
        step_ns = model.predict(made).step_ns
        applied.append(Applied(kind, what, len({change.task for change in made}), step_ns))
        changes += made
        if bound := _bound_outside_replay(store, model, fixes, what, model.replayed_ns - step_ns, context):
            bounds.append(bound)
    predicted = model.predict(changes)
    before = _path(path_rows(store, model), model)
    after = _path(path_rows(store, model, predicted), model)
    if predicted.step_ns > predicted.replay.step_ns:
        # Prefetching runs concurrently with the steps. If it takes longer than a replayed step, it sets the step time.
        after = Path((BoundShare("beside", 1.0),), (PathTask("beside", None, predicted.step_ns, 1),))
    mean_ns = uneven_mean_ns(store, model)
    uneven = None if mean_ns is None else round(mean_ns)
    return WhatIf(
        *known, predicted.step_ns, tuple(applied), before, after, bounds=tuple(bounds), mean_step_ns=uneven
    )  # fmt: skip


def _bound_outside_replay(
    store: TraceStore, model: Model, fixes: Sequence[Rule], code: str, saved_ns: int, context: Context
) -> FixBound | None:
    """Return the upper bound for the fix of rule ``code`` if most of its gain is in steps that ``model`` leaves out."""
    rule = next((rule for rule in fixes if rule.code == code), None)
    bound = None if rule is None else _bound_or_none(store, rule, context)
    return bound if bound and lies_elsewhere(store, bound.ns_per_step, saved_ns, model) else None


def _predict_run(
    store: TraceStore, fixes: Sequence[Rule], tasks: Sequence[Wanted], rank: int | None, context: Context
) -> WhatIf:
    """Predict the step time of the run with ``fixes`` of cross-rank rules, by replaying all ranks together."""
    others = [rule.code for rule in fixes if rule.whatif_ranks is None] + [f"{task.change} {task}" for task in tasks]
    if others or rank is not None:
        one = next(rule.code for rule in fixes if rule.whatif_ranks is not None)
        other = others[0] if others else f"--rank {rank}"
        raise PerfToolError(f"{one} applies to all ranks together, but {other} applies to one rank")
    model = run_model_of(store)
    if isinstance(model, str):
        return WhatIf(None, 0, None, None, None, None, (), None, None, model, len(store.metadata))
    known = (None, len(model.meetings.steps), model.measured_ns, model.replayed_ns, model.error_ratio)
    if model.why_not:
        return WhatIf(*known, None, (), None, None, model.why_not, len(model.meetings.ranks))
    applied, changes, bounds = [], [], []
    for rule in fixes:
        made = _found_changes(store, rule, context)
        if not made:
            bounds.append(_bound(store, rule, context))
            continue
        applied.append(Applied("fix", rule.code, len(made), model.predict(made)))
        changes += made
    predicted = model.predict(changes)
    ranks = len(model.meetings.ranks)
    return WhatIf(*known, predicted, tuple(applied), None, None, None, ranks, tuple(bounds))


def _found_changes(store: TraceStore, rule: Rule, context: Context) -> list[Less]:
    """Return the changes from fixing all findings of ``rule``, a cross-rank rule. Raise QueryError."""
    answer = ask(store, rule, context)
    if answer.error:
        raise QueryError(f"{rule.code}: {answer.error}")
    changes = changes_of_ranks(store, rule, context)
    return [change for row in answer.rows for change in changes.get(str(row.get("subject")), [])]


def _chosen(store: TraceStore, rank: int | None) -> tuple[int | None, Model | str]:
    """Return the rank to replay (``rank``, or the replayable rank with the longest steps), and its model or the reason
    why there is none."""
    ranks = sorted(store.metadata)
    if rank is not None and rank not in ranks:
        raise PerfToolError(f"rank {rank} has no trace; the ranks with traces are {', '.join(map(str, ranks))}")
    if rank is None and len(ranks) > MOST_RANKS:
        return None, f"{len(ranks)} ranks are too many to replay; choose one with --rank"
    if not ranks:
        return None, "there is no trace to replay"
    models = {number: model_of(store, number) for number in ([rank] if rank is not None else ranks)}

    def usable(number: int) -> tuple[bool, bool, int]:
        model = models[number]
        return (False, False, 0) if isinstance(model, str) else (True, model.predicts, model.measured_ns)

    slowest = max(models, key=usable)
    return slowest, models[slowest]


Made = tuple[Literal["fix", "scale", "without"], str, list[Change]]


def _of_fixes(store: TraceStore, model: Model, fixes: Sequence[Rule], context: Context) -> list[Made]:
    found: list[Made] = []
    for rule in fixes:
        # If there are no changes, the caller uses the bound of the gain.
        made = [change for _, change in changes_of(store, rule, model, context)]
        found.append(("fix", rule.code, made))
    return found


def _of_tasks(store: TraceStore, model: Model, tasks: Sequence[Wanted]) -> list[Made]:
    return [(wanted.change, str(wanted), _changes(store, model, wanted)) for wanted in tasks]


def _changes(store: TraceStore, model: Model, wanted: Wanted) -> list[Change]:
    begin, end = model.window
    kind = _ON_HOST.get(wanted.kind, wanted.kind)
    values = {"rank": model.rank, "kind": kind, "pattern": wanted.pattern, "begin": begin, "end": end}
    rows = store.select(_HOST if wanted.kind in _ON_HOST else _DEVICE, values)
    if not rows:
        raise PerfToolError(f"{wanted}: no match in the replayed steps")
    factor = 1.0 if wanted.factor is None else wanted.factor
    return [
        Change("skip" if wanted.factor is None else "shorten", row["id"], row["track"], row["ts"], row["end"], factor)
        for row in rows
    ]


def _path(rows: Sequence[PathRow], model: Model) -> Path:
    total: dict[tuple[str, str | None], int] = defaultdict(int)
    count: dict[tuple[str, str | None], int] = defaultdict(int)
    for row in rows:
        total[row.kind, row.name] += row.bound_ns
        count[row.kind, row.name] += 1
    largest = sorted(total, key=lambda key: (-total[key], key[0], key[1] or ""))[:_MOST_TASKS]
    tasks = tuple(PathTask(*key, total[key] // model.steps, count[key]) for key in largest)
    return Path(bound_shares(rows), tasks)
