"""Analyses many ranks in several tasks, merges their exported tables, and evaluates the rules on the merged store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perftool.engine.ranks.batch import Batch
from perftool.engine.ranks.part import Facts, Part, Shared, analyse_batch
from perftool.engine.ranks.schedule import Progress, Schedule, TaskFailed
from perftool.engine.report.compose import unreadable
from perftool.engine.rules.evaluate import Outcome, ask, conclude, why_not
from perftool.engine.rules.pack import USER_CODE
from perftool.engine.rules.predict import without_predictions
from perftool.engine.rules.predict_run import predicted_together
from perftool.engine.rules.rule_queries import Answer, Context
from perftool.errors import InputError
from perftool.model.rule import Rule
from perftool.readers.files.runs import APART_NS
from perftool.replay.limits import MOST_RANKS
from perftool.store.rank_export import spans_ranks
from perftool.store.ranks import base_time
from perftool.store.trace_store import TraceStore
from perftool.units import EARLIEST_DATE_NS, format_ns


def per_rank(rule: Rule) -> bool:
    """Whether ``rule`` must run on one rank at a time.

    The documentation promises this for user rules. Shipped rules return the same findings whether the ranks are in one
    store or in several, which a test checks.
    """
    return rule.scope == "rank" and rule.sql is not None and USER_CODE.fullmatch(rule.code) is not None


def analyse(tasks: Sequence[Batch], shared: Shared, schedule: Schedule, progress: Progress | None) -> list[Part]:
    """Run ``tasks``, and return their results in order. The traces of a failed task are retried one by one."""
    work = partial(analyse_batch, shared=shared)
    results = list(schedule.run(tasks, work, progress))
    retried = [
        single
        for task, result in zip(tasks, results, strict=True)
        if isinstance(result, TaskFailed)
        for single in task.split()
    ]
    singles = [single for single in retried if Batch((single.files[0],)) not in tasks]
    again = dict(zip(singles, schedule.run(singles, work, progress), strict=True)) if singles else {}
    parts = []
    for task, result in zip(tasks, results, strict=True):
        if not isinstance(result, TaskFailed):
            parts.append(result)
            continue
        parts += [_made(single, again.get(single, result)) for single in task.split()]
    return parts


def _made(task: Batch, result: Part | TaskFailed) -> Part:
    if isinstance(result, Part):
        return result
    path = task.files[0].path
    return Part((), (unreadable(path, InputError(f"{path}: {result.why}")),), None)


def join(store: TraceStore, parts: Sequence[Part]) -> list[Facts]:
    """Merge ``parts`` into ``store``, with times relative to a common zero, and return their facts."""
    facts = [part.facts for part in parts if part.facts is not None]
    store.base_ns = next((fact.base_ns for fact in facts if fact.base_ns), 0)
    if facts:
        store.import_ranks([fact.exported(store.base_ns) for fact in facts])
    for part in parts:
        store.inputs += part.inputs
        store.unreadable += part.unreadable
    for fact in facts:
        store.metadata |= {rank: dict(metadata) for rank, metadata in fact.metadata.items()}
    return facts


def require_one_recording(store: TraceStore, what: str) -> None:
    """Raise InputError if the ranks in ``store`` were recorded at different times. ``what`` names the inputs.

    Discovery separates recordings by their start times. But it reads only the first bytes of a large compressed file,
    and such a file may state the origin of its times at the end.
    """
    if len(store.metadata) < 2:
        return
    store.build(["windows"])
    # If a rank's trace states no origin, its times are absolute, or its clock has no date.
    origins = {rank: store.base_ns if base_time(metadata) else 0 for rank, metadata in store.metadata.items()}
    rows = store.select("SELECT rank, ts FROM windows")
    known = ((row["ts"] + origins.get(row["rank"], 0), row["rank"]) for row in rows)
    starts = sorted(start for start in known if start[0] > EARLIEST_DATE_NS)
    if len(starts) < 2 or starts[-1][0] - starts[0][0] <= APART_NS:
        return
    (begin, first), (end, last) = starts[0], starts[-1]
    way = "; name the traces of one recording, or join them with --as-one-run" if what == "traces" else ""
    raise InputError(
        f"the {what} are of different recordings: rank {last} was recorded {format_ns(end - begin)} after rank {first}"
        f"{way}"
    )


def unpredicted(parts: Sequence[Part]) -> list[Part]:
    """Remove the predictions from ``parts`` if the run has too many ranks to replay."""
    if sum(len(part.facts.metadata) for part in parts if part.facts) <= MOST_RANKS:
        return list(parts)
    return [replace(part, facts=part.facts and _without_replays(part.facts)) for part in parts]


def _without_replays(facts: Facts) -> Facts:
    answers, models = without_predictions(facts.answers, list(facts.metadata))
    return replace(facts, answers=answers, models=models)


def evaluate_joined(store: TraceStore, facts: Sequence[Facts], rules: Sequence[Rule], context: Context) -> Outcome:
    """Return the outcome of ``rules``. Cross-rank rules run here, on ``store``; the tasks have already run the
    others.
    """
    with_queries = [rule for rule in rules if rule.sql is not None]
    crashed = next((rule for rule in rules if rule.code == "TRC001"), None)
    filled = frozenset(name for fact in facts for name in fact.filled)
    answers_by_code = [{answer.code: answer for answer in fact.answers} for fact in facts]

    def has_rows(name: str) -> bool:
        return store.has_rows(name) if spans_ranks(name) else name in filled

    def answer(rule: Rule) -> Answer:
        if rule.scope == "ranks":
            return ask(store, rule, context)
        reason = why_not(rule, context, has_rows)
        if reason is not None:
            return Answer(rule.code, why_not=reason)
        answers = [answers[rule.code] for answers in answers_by_code]
        rows = [
            row for fact, answer in zip(facts, answers, strict=True) for row in _rows(rule, answer, fact, store.base_ns)
        ]
        error = next((answer.error for answer in answers if answer.error), None)
        once = tuple(_deduplicated(rows, len(store.metadata)))
        cut, spent = any(answer.cut for answer in answers), any(answer.spent for answer in answers)
        return Answer(rule.code, once, error=error, cut=cut, spent=spent)

    models = tuple(model for fact in facts for model in fact.models)
    answers, run = predicted_together(store, with_queries, list(map(answer, with_queries)), context)
    return replace(conclude(with_queries, answers, context, crashed), models=models, run=run)


def _rows(rule: Rule, answer: Answer, fact: Facts, base_ns: int) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield the rows of ``answer``, with times relative to ``base_ns``. Each row is paired with the rank that the rule
    ran on (None if it ran on several)."""
    rule_rank = next(iter(fact.metadata)) if per_rank(rule) else None
    only = next(iter(fact.metadata)) if len(fact.metadata) == 1 else None
    shift = fact.shift(base_ns)
    for row in answer.rows:
        yield rule_rank, shift.row(row, row["rank"] if row.get("rank") is not None else only)


def _deduplicated(rows: Sequence[tuple[int | None, Mapping[str, Any]]], ranks: int) -> Iterable[Mapping[str, Any]]:
    """Remove duplicates from ``rows`` of a run with ``ranks`` ranks: equal rows without a rank come from the same log.

    A row of a user rule without a rank column gets the rank that the rule ran on, unless the row is the same for all
    ranks.
    """
    times = Counter(repr(row) for _, row in rows)
    seen: set[str] = set()
    for rule_rank, row in rows:
        text = repr(row)
        if row.get("rank") is not None:
            yield row
        elif rule_rank is not None and "rank" not in row and times[text] < ranks:
            yield {**row, "rank": rule_rank}
        elif text not in seen:
            seen.add(text)
            yield row
