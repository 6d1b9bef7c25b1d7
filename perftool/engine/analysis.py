"""Files in, report out: the one way through readers, store and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from perftool.engine.ranks.joined import analyze_ranks
from perftool.engine.ranks.schedule import IN_PROCESS, InProcess, Processes, Progress, Schedule
from perftool.engine.report import overview
from perftool.engine.report.compose import compose, read_texts, require_input, unreadable
from perftool.engine.report.verdict import verdict
from perftool.engine.rules.evaluate import evaluate
from perftool.engine.rules.pack import USER_CODE, builtin_folder, load_pack
from perftool.errors import InputError
from perftool.model.report import Device, NotApplicable, Report
from perftool.model.rule import Rule
from perftool.readers.files.discover import Inputs, find_inputs
from perftool.store.device import detect_device
from perftool.store.sizing import text_size
from perftool.store.trace_store import TraceStore

# A task of its own makes all tables for itself. For a trace below this size that is most of its time.
_SMALL = 4 << 20
_FEW = 8
_MOST_TOGETHER = 256 << 20


@contextmanager
def open_inputs(inputs: Inputs, progress: Progress | None = None) -> Iterator[TraceStore]:
    """Read the files of ``inputs`` into one store. Raises InputError when none of them can be read."""
    with TraceStore.for_files(inputs.traces) as store:
        for path in inputs.traces:
            report = (lambda done, path=path: progress(path, done)) if progress else None
            try:
                store.add_trace(path, report)
            except InputError as error:
                store.unreadable.append(unreadable(path, error))
        readings, failed = read_texts(inputs.texts)
        store.unreadable += failed
        for reading in readings:
            store.add_reading(reading)
        require_input(store)
        yield store


def analyze(
    paths: Sequence[str],
    rules: Iterable[Rule] | None = None,
    progress: Progress | None = None,
    logs: Sequence[str] = (),
    schedule: Schedule = IN_PROCESS,
) -> Report:
    """Analyse the files ``paths`` (and ``logs``) together, with ``rules`` or the shipped pack.

    Raises InputError when no file can be read; a file among others that cannot is a TRC000 finding.
    """
    inputs = find_inputs(paths, logs)
    return analyze_inputs(inputs, list(rules) if rules is not None else load_pack(builtin_folder()), progress, schedule)


def analyze_inputs(
    inputs: Inputs, rules: Sequence[Rule], progress: Progress | None = None, schedule: Schedule = IN_PROCESS
) -> Report:
    """Analyse ``inputs`` with ``rules``; several traces are the ranks of one run, each a task of ``schedule``."""
    if len(inputs.traces) > 1 and not _are_many_and_small(inputs.traces, rules, schedule):
        return analyze_ranks(inputs, rules, schedule, progress)
    with open_inputs(inputs, progress) as store:
        if progress:
            progress("analysing", 0)
        return report_on(store, rules)


def _are_many_and_small(traces: Sequence[str], rules: Sequence[Rule], schedule: Schedule) -> bool:
    """Whether ``traces`` are read faster into one store, which gives the same report.

    Rules of users are not asked of it: they are promised one rank at a time.
    """
    if not isinstance(schedule, InProcess | Processes) or len(traces) <= _FEW:
        return False
    size = sum(map(text_size, traces))
    small = size <= _MOST_TOGETHER and size <= _SMALL * len(traces)
    return small and not any(USER_CODE.fullmatch(rule.code) for rule in rules)


def report_on(store: TraceStore, rules: Sequence[Rule]) -> Report:
    """The report over the inputs of ``store``, whatever their number."""
    crashed = next((rule for rule in rules if rule.code == "TRC001"), None)
    return compose(store, rules, detect_device(store), lambda context: evaluate(store, rules, context, crashed))


def empty_report(rules: Sequence[Rule]) -> Report:
    """The report over no input at all: every number is missing, and no rule has anything to say."""
    reasons = tuple(NotApplicable(rule.code, "there is no input") for rule in rules if rule.sql)
    summary = overview.metrics([])
    return Report(
        inputs=(),
        device=Device(None, None, 0),
        summary=summary,
        steps=(),
        idle_causes=(),
        top_device_ops=(),
        top_ops=(),
        engines=(),
        recipes=(),
        fallbacks=(),
        findings=(),
        not_applicable=reasons,
        verdict=verdict((), summary, (), (), reasons, rules),
        rules=tuple(rules),
    )
