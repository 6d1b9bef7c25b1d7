"""Predicts the step time of a run without the delays of a rank, by replaying all ranks with their collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from perftool.engine.rules.allowance import SpentError
from perftool.engine.rules.limits import limited
from perftool.engine.rules.message import PREDICTION
from perftool.engine.rules.row_check import whole
from perftool.engine.rules.rule_queries import Answer, Context, run_sql, sql_values
from perftool.errors import QueryError
from perftool.model.replayed import ReplayedRun
from perftool.model.rule import Rule
from perftool.replay.ranks.meetings import CAUSES, Less
from perftool.replay.ranks.model import RunModel, run_model_of
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns

_MOST_CHANGES = 100_000


def predicted_together(
    store: TraceStore, rules: Sequence[Rule], answers: Sequence[Answer], context: Context
) -> tuple[list[Answer], ReplayedRun | None]:
    """Add predictions from a replay of all ranks to ``answers``, and describe that replay.

    ``store`` contains all ranks of the run. With a single rank, there is no such replay.
    """
    asked = any(rule.whatif_ranks and answer.rows for rule, answer in zip(rules, answers, strict=True))
    if len(store.metadata) < 2 or not (asked or context.describes):
        return list(answers), None
    model = run_model_of(store)
    if isinstance(model, str):
        return list(answers), ReplayedRun(len(store.metadata), 0, None, None, None, model)
    results = list(answers)
    if model.why_not is None:
        for number, (rule, answer) in enumerate(zip(rules, results, strict=True)):
            if rule.whatif_ranks is not None and answer.rows:
                results[number] = _with_prediction(store, model, rule, answer, context)
    meetings = model.meetings
    return results, ReplayedRun(
        ranks=len(meetings.ranks),
        steps=len(meetings.steps),
        measured_step_ns=model.measured_ns,
        replayed_step_ns=model.replayed_ns,
        error_ratio=model.error_ratio,
        why_not=model.why_not,
    )


def changes_of_ranks(store: TraceStore, rule: Rule, context: Context) -> dict[str, list[Less]]:
    """Return the changes that the fix of ``rule``, a cross-rank rule, makes for each subject.

    Raise QueryError if the rule's query fails or returns anything but changes.
    """
    assert rule.whatif_ranks is not None
    values = sql_values(rule, rule.whatif_ranks, context)
    columns, rows, _ = run_sql(store, rule, rule.whatif_ranks, values, _MOST_CHANGES)
    found: dict[str, list[Less]] = defaultdict(list)
    for row in (dict(zip(columns, values, strict=True)) for values in rows):
        found[str(row.get("subject"))].append(_less(row))
    return found


def _less(row: Mapping[str, Any]) -> Less:
    rank, step = whole("rank", row.get("rank")), whole("step", row.get("step"))
    cause, factor, group = row.get("cause"), row.get("factor"), row.get("group_name")
    if row.get("change") != "shorten":
        raise QueryError(f"change is {row.get('change')!r:.40}; cross-rank rules support only shorten")
    if rank is None:
        raise QueryError("rank is missing")
    if cause not in (*CAUSES, "own", "link"):
        raise QueryError(f"cause is {cause!r:.40}, not one of {', '.join(CAUSES)}, own, link")
    if factor is not None and not (isinstance(factor, (int, float, Decimal)) and 0 <= factor <= 1):
        raise QueryError(f"factor is {factor!r:.40}, not a number from 0 to 1")
    return Less(rank, cause, None if factor is None else float(factor), step, None if group is None else str(group))


def _with_prediction(store: TraceStore, model: RunModel, rule: Rule, answer: Answer, context: Context) -> Answer:
    try:
        changes = changes_of_ranks(store, rule, context)
    except SpentError:
        return replace(answer, spent=True)
    except (QueryError, KeyError) as error:
        return replace(answer, error=f"whatif: {error}")
    rows = [_predicted(model, row, changes.get(str(row.get("subject")), [])) for row in answer.rows]
    return replace(answer, rows=tuple(limited(store, rule.relieves, rows, context)))


def _predicted(model: RunModel, row: Mapping[str, Any], changes: Sequence[Less]) -> Mapping[str, Any]:
    """Add the predicted gain of the fix to ``row``, unless it already has one. Keep the bound if nothing changes."""
    if not changes or "predicted_ns" in row:
        return row
    step_ns = model.predict(changes)
    gain = {"predicted_ns": max(0, model.replayed_ns - step_ns)}
    if PREDICTION not in row or step_ns >= model.replayed_ns:
        return {**row, **gain}
    steps = f"a step takes {format_ns(step_ns)} instead of {format_ns(model.replayed_ns)}"
    return {**row, **gain, PREDICTION: f"; without that, {steps} (predicted)"}
