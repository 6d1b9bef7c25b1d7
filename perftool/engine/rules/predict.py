"""Predicts the gains of fixes by replaying the recorded steps with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import partial
from time import monotonic
from typing import Any

from perftool.engine.rules.allowance import SpentError, charged
from perftool.engine.rules.limits import lengthened, limited, overloaded, own_steps_ns, unsteady
from perftool.engine.rules.message import PREDICTION
from perftool.engine.rules.pack import is_shipped
from perftool.engine.rules.row_check import whole
from perftool.engine.rules.rule_queries import RULE_TIME_LIMIT_S, Answer, Context, run_sql, sql_values
from perftool.errors import QueryError, QueryTimeoutError
from perftool.model.replayed import ReplayModel, Together
from perftool.model.rule import Rule
from perftool.replay.bounds import bounds_of
from perftool.replay.changes import CHANGE_KINDS, Change
from perftool.replay.limits import MOST_RANKS
from perftool.replay.model import Model, models_of
from perftool.store.trace_store import TraceStore

_MOST_CHANGES = 400_000
# Combinations of up to _MOST_TOGETHER fixes are chosen from the _CANDIDATES fixes with the largest gains, unless the
# graph has more than _MOST_NODES nodes.
_CANDIDATES, _MOST_TOGETHER, _MOST_NODES = 4, 3, 50_000
LARGEST_FACTOR = 1000
# If the mean step is this many times the typical step, typical steps are not representative.
_UNEVEN = 1.25
_TOO_MANY = f"steps are replayed only if at most {MOST_RANKS} ranks are read together"
# Joins each row of a whatif query with the slice that it refers to.
_PLACED = """
SELECT w.*, s.id AS slice_id, s.track AS slice_track, s.ts AS slice_ts, s."end" AS slice_end
FROM ({sql}) AS w JOIN slices AS s ON s.id = w.task
WHERE s.rank = {rank} AND s.ts < {end} AND s."end" > {begin}
"""


def predicted(
    store: TraceStore, rules: Sequence[Rule], answers: Sequence[Answer], context: Context, ranks_of_run: int
) -> tuple[list[Answer], tuple[ReplayModel, ...]]:
    """Add ``predicted_ns`` to each row of ``answers`` with a fix that can be replayed, and describe the model of each
    rank in ``store``.

    ``ranks_of_run`` includes ranks in other stores.
    """
    if not context.describes and not any(
        rule.whatif and answer.rows for rule, answer in zip(rules, answers, strict=True)
    ):
        return list(answers), ()
    ranks = sorted(store.metadata)
    if ranks_of_run > MOST_RANKS:
        return list(answers), tuple(_no_model(rank, _TOO_MANY) for rank in ranks)
    results, models = list(answers), []
    for rank, model in models_of(store).items():
        # Recordings of a start-up, of an overloaded machine, or of steps that the recording lengthened do not allow
        # predictions, even if they can be replayed.
        reason = unsteady(store, rank) or overloaded(store, rank) or lengthened(store, rank)
        reason = reason or (model if isinstance(model, str) else None)
        if reason or isinstance(model, str):
            models.append(_no_model(rank, reason or str(model)))
            continue
        fixes: dict[str, list[Change]] = {}
        if model.predicts:
            for number, (rule, answer) in enumerate(zip(rules, results, strict=True)):
                results[number] = _with_prediction(store, model, rule, answer, context, fixes, only=len(ranks) == 1)
        models.append(_described(store, model, fixes))
    return results, tuple(models)


def without_predictions(
    answers: Sequence[Answer], ranks: Sequence[int]
) -> tuple[tuple[Answer, ...], tuple[ReplayModel, ...]]:
    """Remove the predictions from ``answers`` of a run with too many ranks to replay; all its ``ranks`` get empty
    models."""
    bare = [tuple({key: row[key] for key in row if key != "predicted_ns"} for row in answer.rows) for answer in answers]
    kept = tuple(replace(answer, rows=rows) for answer, rows in zip(answers, bare, strict=True))
    return kept, tuple(_no_model(rank, _TOO_MANY) for rank in sorted(ranks))


def changes_of(store: TraceStore, rule: Rule, model: Model, context: Context) -> list[tuple[str | None, Change]]:
    """Return the changes that the fix of ``rule`` makes to the steps of ``model``, each with its subject (None for
    all).

    Raise QueryError if the rule's query fails or returns anything but changes.
    """
    begin, end = model.window
    placed = partial(_PLACED.format, rank=model.rank, begin=begin, end=end)
    rows = _what_changes(store, rule, context, placed)
    return [(None if row.get("subject") is None else str(row["subject"]), _change(row)) for row in rows]


def _what_changes(
    store: TraceStore, rule: Rule, context: Context, placed: Callable[..., str]
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of the rule's whatif query joined with their slices; ``placed`` adds the join to SQL."""
    assert rule.whatif is not None
    values = sql_values(rule, rule.whatif, context)
    if is_shipped(rule):
        return _named(*run_sql(store, rule, placed(sql=rule.whatif), values, _MOST_CHANGES)[:2])
    # Third-party SQL runs separately, because it could otherwise break out of our statement.
    rows = _named(*run_sql(store, rule, rule.whatif, values, _MOST_CHANGES)[:2])
    tasks = [whole("task", row.get("task")) for row in rows]
    slices = store.select(placed(sql="SELECT DISTINCT unnest($tasks::BIGINT[]) AS task"), {"tasks": tasks})
    known = {row["task"]: row for row in slices}
    return [{**row, **known[task]} for row, task in zip(rows, tasks, strict=True) if task in known]


def _named(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _change(row: Mapping[str, Any]) -> Change:
    if row.get("change") not in CHANGE_KINDS:
        raise QueryError(f"change is {row.get('change')!r:.40}, not one of {', '.join(CHANGE_KINDS)}")
    factor, parallel = row.get("factor"), whole("parallel", row.get("parallel"))
    if factor is not None and not (isinstance(factor, (int, float, Decimal)) and 0 <= factor <= LARGEST_FACTOR):
        raise QueryError(f"factor is {factor!r:.40}, not a number from 0 to {LARGEST_FACTOR:,}")
    return Change(
        kind=row["change"],
        task=row["slice_id"],
        track=row["slice_track"],
        ts=row["slice_ts"],
        end=row["slice_end"],
        factor=1.0 if factor is None else float(factor),
        parallel=1 if parallel is None else max(1, parallel),
    )


def _with_prediction(
    store: TraceStore, model: Model, rule: Rule, answer: Answer, context: Context, fixes: dict[str, list[Change]],
    *, only: bool,
) -> Answer:  # fmt: skip
    """Add predictions to the rows of ``answer`` for the rank of ``model``, and add the changes to ``fixes``."""
    if rule.whatif is None:
        return answer
    rows = list(answer.rows)
    own_rows = [
        at for at, row in enumerate(rows) if row.get("rank") == model.rank or (only and row.get("rank") is None)
    ]
    try:
        for at, saved, lacks, changes in _judged(store, model, rule, context, [(at, rows[at]) for at in own_rows]):
            if lacks:
                # The replayed change needs cores that the machine may lack. Another way to fix the problem may not need
                # them, so the bound is kept.
                bound_ns = rows[at].get("gain_ns")
                most = max(0, saved) if bound_ns is None else bound_ns
                rows[at] = {**rows[at], "gain_ns": most, PREDICTION: f"; {lacks}"}
                continue
            if lies_elsewhere(store, rows[at].get("gain_ns"), saved, model):
                continue
            rows[at] = {**rows[at], "predicted_ns": max(0, saved)}
            if rule.severity != "info":
                fixes.setdefault(rule.code, []).extend(changes)
    except SpentError:
        fixes.pop(rule.code, None)
        return replace(answer, rows=tuple(rows), spent=True)
    except (QueryError, KeyError) as error:
        fixes.pop(rule.code, None)
        return replace(answer, error=f"whatif: {error}")
    return replace(answer, rows=tuple(limited(store, rule.relieves, rows, context)))


def uneven_mean_ns(store: TraceStore, model: Model) -> float | None:
    """Return the mean step in ns if steps are uneven, so that ``model`` replays only the typical ones; otherwise,
    return None.
    """
    own = own_steps_ns(store, model.rank)
    return None if own is None or own["gain_ns"] < _UNEVEN * model.measured_ns else own["gain_ns"]


def lies_elsewhere(store: TraceStore, evidence_ns: float | None, saved_ns: int, model: Model) -> bool:
    """Whether most of the loss ``evidence_ns`` is in steps of unusual length, which are not replayed."""
    mean_ns = uneven_mean_ns(store, model)
    if evidence_ns is None or mean_ns is None:
        return False
    return saved_ns / model.measured_ns < float(evidence_ns) / mean_ns / 2


def _judged(
    store: TraceStore, model: Model, rule: Rule, context: Context, rows: Sequence[tuple[int, Mapping[str, Any]]]
) -> Iterator[tuple[int, int, str | None, list[Change]]]:
    """Replay the fix of each of ``rows`` that has changes. Yield the number of the row, the time saved in ns, a clause
    about missing cores if the saving is only a bound, and the changes that no earlier row has.

    Raise QueryTimeoutError if the replays take longer than a query may.
    """
    until = monotonic() + RULE_TIME_LIMIT_S
    by_subject: dict[str | None, list[Change]] = {}
    for about, change in changes_of(store, rule, model, context) if rows else ():
        by_subject.setdefault(about, []).append(change)
    for_every = by_subject.get(None, [])
    known: dict[str | None, tuple[int, str | None]] = {}
    for number, row in rows:
        subject = str(row.get("subject"))
        key = subject if subject in by_subject else None
        # Without changes, the fix cannot be modelled, so the bound is kept.
        if key not in by_subject:
            continue
        if monotonic() > until:
            raise QueryTimeoutError(RULE_TIME_LIMIT_S)
        new: list[Change] = []
        if key not in known:
            own = by_subject[key] if key is not None else []
            new = [*own, *(for_every if not known else ())]
            with nullcontext() if is_shipped(rule) else charged(store):
                predicted_step = model.predict([*for_every, *own])
                known[key] = model.replayed_ns - predicted_step.step_ns, predicted_step.lacks
        yield number, *known[key], new


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
        best=_best(model, fixes),
        bounds=bounds_of(store, model) if model.predicts else (),
    )


def _best(model: Model, fixes: Mapping[str, Sequence[Change]]) -> tuple[Together, ...]:
    """Return the best single fix, pair and triple of fixes, chosen greedily. Each combination is replayed, because
    gains overlap."""
    if len(fixes) < 2 or len(model.graph.order) > _MOST_NODES:
        return ()
    single_times = {code: model.predict(changes).step_ns for code, changes in sorted(fixes.items())}
    candidates = sorted(single_times, key=lambda code: (single_times[code], code))[:_CANDIDATES]
    chosen, changes = [candidates[0]], list(fixes[candidates[0]])
    found = [Together((candidates[0],), single_times[candidates[0]])]
    while len(found) < _MOST_TOGETHER and len(chosen) < len(candidates):
        rest = [code for code in candidates if code not in chosen]
        step_times = {code: model.predict([*changes, *fixes[code]]).step_ns for code in rest}
        best = min(rest, key=lambda code: (step_times[code], code))
        if step_times[best] >= found[-1].step_ns:
            break
        chosen.append(best)
        changes += fixes[best]
        found.append(Together(tuple(sorted(chosen)), step_times[best]))
    return tuple(found)


def _no_model(rank: int, why_not: str) -> ReplayModel:
    return ReplayModel(rank, 0, None, None, None, why_not)


def slowest(models: Iterable[ReplayModel]) -> ReplayModel | None:
    """Return the model of the rank with the longest steps, or None if there is none. Reports show this model."""
    return max(models, key=lambda model: (model.measured_step_ns or 0, -model.rank), default=None)
