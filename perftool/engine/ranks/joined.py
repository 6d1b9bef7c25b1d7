"""Many ranks: analysed by several tasks, and one store and one answer of the rules over what these hand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perftool.engine.ranks.batch import Batch
from perftool.engine.ranks.part import Facts, Part, Shared, analyse_batch
from perftool.engine.ranks.schedule import Lost, Progress, Schedule
from perftool.engine.report.compose import unreadable
from perftool.engine.rules.asking import Answer, Context
from perftool.engine.rules.evaluate import Outcome, ask, conclude, why_not
from perftool.engine.rules.pack import USER_CODE
from perftool.engine.rules.predict import without_predictions
from perftool.engine.rules.predict_run import predicted_together
from perftool.errors import InputError
from perftool.model.rule import Rule
from perftool.replay.limits import MOST_RANKS
from perftool.store.handover import spans_ranks
from perftool.store.trace_store import TraceStore


def asked_apart(rule: Rule) -> bool:
    """Whether ``rule`` is asked of one rank at a time.

    Users are promised that. A shipped rule finds the same whether the ranks are in one store or not; a test holds it.
    """
    return rule.scope == "rank" and rule.sql is not None and USER_CODE.fullmatch(rule.code) is not None


def analyse(tasks: Sequence[Batch], shared: Shared, schedule: Schedule, progress: Progress | None) -> list[Part]:
    """What ``tasks`` hand on, in their order. Where one is lost its traces are tried again, each by itself."""
    work = partial(analyse_batch, shared=shared)
    results = list(schedule.run(tasks, work, progress))
    retried = [
        alone for task, result in zip(tasks, results, strict=True) if isinstance(result, Lost) for alone in task.split()
    ]
    singles = [alone for alone in retried if Batch((alone.files[0],)) not in tasks]
    again = dict(zip(singles, schedule.run(singles, work, progress), strict=True)) if singles else {}
    parts = []
    for task, result in zip(tasks, results, strict=True):
        if not isinstance(result, Lost):
            parts.append(result)
            continue
        parts += [_made(alone, again.get(alone, result)) for alone in task.split()]
    return parts


def _made(task: Batch, result: Part | Lost) -> Part:
    if isinstance(result, Part):
        return result
    path = task.files[0].path
    return Part((), (unreadable(path, InputError(f"{path}: {result.why}")),), None)


def join(store: TraceStore, parts: Sequence[Part]) -> list[Facts]:
    """Put ``parts`` together in ``store``, their times counted from one zero; returns what they say."""
    facts = [part.facts for part in parts if part.facts is not None]
    store.base_ns = next((fact.base_ns for fact in facts if fact.base_ns), 0)
    if facts:
        store.adopt([fact.handover(store.base_ns) for fact in facts])
    for part in parts:
        store.inputs += part.inputs
        store.unreadable += part.unreadable
    for fact in facts:
        store.metadata |= {rank: dict(metadata) for rank, metadata in fact.metadata.items()}
    return facts


def unpredicted(parts: Sequence[Part]) -> list[Part]:
    """``parts``, which may have been made apart, without replays where the run has more ranks than are replayed."""
    if sum(len(part.facts.metadata) for part in parts if part.facts) <= MOST_RANKS:
        return list(parts)
    return [replace(part, facts=part.facts and _bare(part.facts)) for part in parts]


def _bare(facts: Facts) -> Facts:
    answers, models = without_predictions(facts.answers, list(facts.metadata))
    return replace(facts, answers=answers, models=models)


def evaluate_joined(store: TraceStore, facts: Sequence[Facts], rules: Sequence[Rule], context: Context) -> Outcome:
    """The rules over ranks are asked here, of ``store``; those of a rank were asked by the tasks."""
    asked = [rule for rule in rules if rule.sql is not None]
    crashed = next((rule for rule in rules if rule.code == "TRC001"), None)
    filled = frozenset(name for fact in facts for name in fact.filled)
    given = [{answer.code: answer for answer in fact.answers} for fact in facts]

    def has_rows(name: str) -> bool:
        return name in filled or (spans_ranks(name) and store.has_rows(name))

    def answer(rule: Rule) -> Answer:
        if rule.scope == "ranks":
            return ask(store, rule, context)
        reason = why_not(rule, context, has_rows)
        if reason is not None:
            return Answer(rule.code, why_not=reason)
        answers = [answers[rule.code] for answers in given]
        rows = [
            row for fact, answer in zip(facts, answers, strict=True) for row in _rows(rule, answer, fact, store.base_ns)
        ]
        error = next((answer.error for answer in answers if answer.error), None)
        told = tuple(_told_once(rows, len(store.metadata)))
        cut, spent = any(answer.cut for answer in answers), any(answer.spent for answer in answers)
        return Answer(rule.code, told, error=error, cut=cut, spent=spent)

    models = tuple(model for fact in facts for model in fact.models)
    answers, run = predicted_together(store, asked, list(map(answer, asked)), context)
    return replace(conclude(asked, answers, context, crashed), models=models, run=run)


def _rows(rule: Rule, answer: Answer, fact: Facts, base_ns: int) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """What was found, each with the rank that was asked, None where several were at once; times from ``base_ns``."""
    asked = next(iter(fact.metadata)) if asked_apart(rule) else None
    only = next(iter(fact.metadata)) if len(fact.metadata) == 1 else None
    shift = fact.shift(base_ns)
    for row in answer.rows:
        yield asked, shift.row(row, row["rank"] if row.get("rank") is not None else only)


def _told_once(rows: Sequence[tuple[int | None, Mapping[str, Any]]], ranks: int) -> Iterable[Mapping[str, Any]]:
    """The rows of all ``ranks``. What they say alike of no rank in particular, a log told them: it counts once.

    A rule of a user that does not say which rank it speaks of speaks of the one it was asked about, unless all say the
    same.
    """
    times = Counter(repr(row) for _, row in rows)
    told: set[str] = set()
    for asked, row in rows:
        text = repr(row)
        if row.get("rank") is not None:
            yield row
        elif asked is not None and "rank" not in row and times[text] < ranks:
            yield {**row, "rank": asked}
        elif text not in told:
            told.add(text)
            yield row
