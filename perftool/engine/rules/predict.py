"""What the fixes of rules would give back, by replaying the recorded steps with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perftool.engine.rules.asking import Answer, Context, run_sql, sql_values
from perftool.engine.rules.limits import limited, unsteady
from perftool.errors import QueryError
from perftool.model.replayed import ReplayModel, Together
from perftool.model.rule import Rule
from perftool.replay.changes import CHANGE_KINDS, Change
from perftool.replay.limits import MOST_RANKS
from perftool.replay.model import Model, models_of
from perftool.replay.path_rows import bound_shares, path_rows
from perftool.store.trace_store import TraceStore

_MOST_CHANGES = 400_000
_TOO_MANY = f"steps are replayed where at most {MOST_RANKS} ranks are read together"
# What a row of a whatif query is about, as the slice that it names has it.
_PLACED = """
SELECT w.*, s.rank AS slice_rank, s.track AS slice_track, s.ts AS slice_ts, s."end" AS slice_end
FROM ({sql}) AS w JOIN slices AS s ON s.id = w.task
WHERE s.rank = {rank} AND s.ts < {end} AND s."end" > {begin}
"""


def predicted(
    store: TraceStore, rules: Sequence[Rule], answers: Sequence[Answer], context: Context, ranks_of_run: int
) -> tuple[list[Answer], tuple[ReplayModel, ...]]:
    """``answers``, their rows with ``predicted_ns`` where a replay tells it, and the model of each rank of ``store``.

    ``ranks_of_run`` counts those of other stores as well.
    """
    ranks = sorted(store.metadata)
    if ranks_of_run > MOST_RANKS:
        return list(answers), tuple(_no_model(rank, _TOO_MANY) for rank in ranks)
    results, models = list(answers), []
    for rank, model in models_of(store).items():
        # What start-up or a thinned recording shows predicts no gain, however well it replays.
        reason = unsteady(store, rank) or (model if isinstance(model, str) else None)
        if reason or isinstance(model, str):
            models.append(_no_model(rank, reason or str(model)))
            continue
        fixes: dict[str, list[Change]] = {}
        if model.predicts:
            for number, (rule, answer) in enumerate(zip(rules, results, strict=True)):
                results[number] = _with_prediction(store, model, rule, answer, context, fixes, only=len(ranks) == 1)
        models.append(_described(store, model, fixes))
    return results, tuple(models)


def changes_of(store: TraceStore, rule: Rule, model: Model, context: Context) -> list[tuple[str | None, Change]]:
    """What the fix of ``rule`` changes in the steps of ``model``, each with the subject it is for, None for every one.

    Raises QueryError when the rule's query fails, or gives something else than changes.
    """
    assert rule.whatif is not None
    begin, end = model.window
    sql = _PLACED.format(sql=rule.whatif, rank=model.rank, begin=begin, end=end)
    columns, rows, _ = run_sql(store, rule, sql, sql_values(rule, rule.whatif, context), _MOST_CHANGES)
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return [(row.get("subject"), _change(row)) for row in found]


def _change(row: Mapping[str, Any]) -> Change:
    if row.get("change") not in CHANGE_KINDS:
        raise QueryError(f"whatif: change is {row.get('change')!r}, none of {', '.join(CHANGE_KINDS)}")
    factor, parallel = row.get("factor"), row.get("parallel")
    return Change(
        kind=row["change"],
        task=row["task"],
        track=row["slice_track"],
        ts=row["slice_ts"],
        end=row["slice_end"],
        factor=1.0 if factor is None else float(factor),
        parallel=1 if parallel is None else max(1, int(parallel)),
    )


def _with_prediction(
    store: TraceStore, model: Model, rule: Rule, answer: Answer, context: Context, fixes: dict[str, list[Change]],
    *, only: bool,
) -> Answer:  # fmt: skip
    """``answer`` with predictions in its rows about the rank of ``model``; the changes go to ``fixes`` as well."""
    if rule.whatif is None:
        return answer
    rows = list(answer.rows)
    ours = [at for at, row in enumerate(rows) if row.get("rank") == model.rank or (only and row.get("rank") is None)]
    try:
        every = changes_of(store, rule, model, context) if ours else []
    except (QueryError, KeyError) as error:
        return replace(answer, error=f"whatif: {error}")
    for number in ours:
        row = rows[number]
        changes = [change for subject, change in every if subject in (None, str(row.get("subject")))]
        # Without anything to change the fix cannot be modelled here, and the bound stands.
        if changes:
            saved = model.replayed_ns - model.predict(changes).step_ns
            rows[number] = {**row, "predicted_ns": max(0, saved)}
            if rule.severity != "info":
                fixes.setdefault(rule.code, []).extend(changes)
    return replace(answer, rows=tuple(limited(store, rule.relieves, rows, context.step_ns)))


def _described(store: TraceStore, model: Model, fixes: Mapping[str, Sequence[Change]]) -> ReplayModel:
    together = None
    if fixes:
        everything = [change for changes in fixes.values() for change in changes]
        together = Together(tuple(sorted(fixes)), model.predict(everything).step_ns)
    return ReplayModel(
        rank=model.rank,
        steps=model.steps,
        measured_step_ns=model.measured_ns,
        replayed_step_ns=model.replayed_ns,
        error_ratio=model.error_ratio,
        why_not=model.why_not,
        together=together,
        bounds=bound_shares(path_rows(store, model)) if model.predicts else (),
    )


def _no_model(rank: int, why_not: str) -> ReplayModel:
    return ReplayModel(rank, 0, None, None, None, why_not)


def slowest(models: Iterable[ReplayModel]) -> ReplayModel | None:
    """The model to show: that of the rank with the longest steps, which the others wait for."""
    return max(models, key=lambda model: (model.measured_step_ns or 0, -model.rank), default=None)
