"""Many ranks: each analysed on its own, and one report over what they hand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perftool.engine.ranks.rank_part import RankPart, RankTask, Shared, shift_ns
from perftool.engine.ranks.schedule import Progress, Schedule
from perftool.engine.report.compose import compose, read_texts, require_input
from perftool.engine.rules.evaluate import Answer, Context, Outcome, ask, conclude, why_not
from perftool.model.inputs import InputFile
from perftool.model.report import Report
from perftool.model.rule import Rule
from perftool.readers.files.discover import Inputs
from perftool.store.device import decide_device
from perftool.store.handover import spans_ranks
from perftool.store.ranks import free_rank
from perftool.store.trace_store import TraceStore


def analyze_ranks(
    inputs: Inputs, rules: Sequence[Rule], schedule: Schedule, progress: Progress | None = None
) -> Report:
    """The report over several traces, one task of ``schedule`` each. Raises InputError when no input can be read."""
    readings, failed = read_texts(inputs.texts)
    with TraceStore() as store:
        memory_mb, threads = schedule.share()
        shared = Shared(tuple(rules), tuple(readings), memory_mb, threads)
        parts, unreadable = _analyse(inputs.traces, shared, schedule, progress)
        store.unreadable = [*unreadable, *failed]
        for reading in readings:
            store.add_reading(reading)
        _join(store, parts)
        require_input(store)
        if progress:
            progress("comparing ranks", 0)
        device = decide_device([part.signs for part in parts])
        return compose(store, rules, device, lambda context: _evaluate(store, parts, rules, context))


def _analyse(
    paths: Sequence[str], shared: Shared, schedule: Schedule, progress: Progress | None
) -> tuple[list[RankPart], list[InputFile]]:
    """Every readable trace, under a rank of its own, and the unreadable ones; both in the order of ``paths``."""
    tasks = [RankTask(path, spare) for spare, path in enumerate(paths)]
    results = list(schedule.run(tasks, shared, progress))
    for number, rank in enumerate(_numbers(results)):
        # Rare: two files state the same rank, or one that states none was filed under a number that another states.
        if rank is not None and rank != getattr(results[number], "rank", None):
            again = replace(tasks[number], rank=rank)
            results[number] = next(iter(schedule.run([again], shared, progress)))
    parts = [result for result in results if isinstance(result, RankPart)]
    return parts, [result for result in results if isinstance(result, InputFile)]


def _numbers(results: Iterable[RankPart | InputFile]) -> Iterator[int | None]:
    """The rank of each result, in the order of files, as one store over all of them would give it."""
    taken: set[int] = set()
    for result in results:
        rank = free_rank(result.stated, taken) if isinstance(result, RankPart) else None
        if rank is not None:
            taken.add(rank)
        yield rank


def _join(store: TraceStore, parts: Sequence[RankPart]) -> None:
    """Put the tables of ``parts`` together in ``store``, their times counted from one zero."""
    if not parts:
        return
    base_ns = _base_ns(parts)
    store.adopt([part.handover(base_ns) for part in sorted(parts, key=_rank)])
    for part in parts:
        store.inputs.append(part.read)
        store.metadata[part.rank] = dict(part.metadata)


def _rank(part: RankPart) -> int:
    return part.rank


def _base_ns(parts: Iterable[RankPart]) -> int:
    """What all times count from: the zero of the first file that names one."""
    return next((part.base_ns for part in parts if part.base_ns), 0)


def _evaluate(store: TraceStore, parts: Sequence[RankPart], rules: Sequence[Rule], context: Context) -> Outcome:
    """The rules over ranks are asked here, of ``store``; those of a rank were asked in its worker."""
    asked = [rule for rule in rules if rule.sql is not None]
    crashed = next((rule for rule in rules if rule.code == "TRC001"), None)
    filled = frozenset(name for part in parts for name in part.filled)
    given = {(part.rank, answer.code): answer for part in parts for answer in part.answers}

    def has_rows(name: str) -> bool:
        return name in filled or (spans_ranks(name) and store.has_rows(name))

    def answer(rule: Rule) -> Answer:
        if rule.scope == "ranks":
            return ask(store, rule, context)
        reason = why_not(rule, context.device, has_rows)
        if reason is not None:
            return Answer(rule.code, why_not=reason)
        base_ns = _base_ns(parts)
        rows = [
            (part.rank, _shifted(row, shift_ns(part.base_ns, base_ns)))
            for part in sorted(parts, key=_rank)
            for row in given[part.rank, rule.code].rows
        ]
        errors = [error for part in parts if (error := given[part.rank, rule.code].error)]
        return Answer(rule.code, tuple(_told_once(rows, len(parts))), error=errors[0] if errors else None)

    return conclude(asked, map(answer, asked), context, crashed)


def _told_once(rows: Sequence[tuple[int, Mapping[str, Any]]], ranks: int) -> Iterator[Mapping[str, Any]]:
    """The rows of all ``ranks``. What they say alike of no rank in particular, a log told them: it counts once.

    A rule that does not say which rank it speaks of speaks of the one it was asked about, unless all say the same.
    """
    times = Counter(repr(row) for _, row in rows)
    told: set[str] = set()
    for rank, row in rows:
        text = repr(row)
        if row.get("rank") == rank:
            yield row
        elif "rank" not in row and times[text] < ranks:
            yield {**row, "rank": rank}
        elif text not in told:
            told.add(text)
            yield row


def _shifted(row: Mapping[str, Any], ns: int) -> Mapping[str, Any]:
    """``row`` with its place, and the places related to it, ``ns`` later."""
    if not ns:
        return row
    moved = dict(row)
    if moved.get("ts") is not None:
        moved["ts"] += ns
    if moved.get("related"):
        moved["related"] = [{**at, "ts": at["ts"] + ns} if at.get("ts") is not None else at for at in moved["related"]]
    return moved
