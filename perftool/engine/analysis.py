"""Files in, report out: the one way through readers, store and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from perftool.engine import overview
from perftool.engine.evaluate import Context, evaluate, make_finding
from perftool.engine.pack import builtin_folder, load_pack
from perftool.errors import InputError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.report import Device, Finding, NotApplicable, Report
from perftool.model.rule import Rule
from perftool.readers.discover import Inputs, find_inputs
from perftool.store.device import detect_device
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

# Called with what is being done and how many bytes of text were read so far.
Progress = Callable[[str, int], None]


@contextmanager
def open_inputs(inputs: Inputs, progress: Progress | None = None) -> Iterator[tuple[TraceStore, list[InputFile]]]:
    """Read the files of ``inputs``; yields the store and the inputs that could not be read.

    Raises InputError when none could be read.
    """
    with TraceStore.for_files(inputs.traces) as store:
        unreadable = []
        for path in inputs.traces:
            report = (lambda done, path=path: progress(path, done)) if progress else None
            try:
                store.add_trace(path, report)
            except InputError as error:
                unreadable.append(_unreadable(path, error))
        for path in inputs.texts:
            try:
                store.add_reading(read_text(path))
            except InputError as error:
                unreadable.append(_unreadable(path, error))
        if not store.inputs and not store.readings:
            raise InputError("; ".join(issue.message for read in unreadable for issue in read.issues))
        yield store, unreadable


def analyze(
    paths: Sequence[str],
    rules: Iterable[Rule] | None = None,
    progress: Progress | None = None,
    logs: Sequence[str] = (),
) -> Report:
    """Analyse the files ``paths`` (and ``logs``) together, with ``rules`` or the shipped pack.

    Raises InputError when no file can be read; a file among others that cannot is a TRC000 finding.
    """
    inputs = find_inputs(paths, logs)
    return analyze_inputs(inputs, list(rules) if rules is not None else load_pack(builtin_folder()), progress)


def analyze_inputs(inputs: Inputs, rules: Sequence[Rule], progress: Progress | None = None) -> Report:
    """Analyse ``inputs`` with ``rules``."""
    with open_inputs(inputs, progress) as (store, unreadable):
        if progress:
            progress("analysing", 0)
        return report_on(store, rules, unreadable)


def report_on(store: TraceStore, rules: Sequence[Rule], unreadable: Sequence[InputFile] = ()) -> Report:
    """The report over the inputs of ``store``."""
    by_code = {rule.code: rule for rule in rules}
    store.build(["summary", "gaps"])
    summary = overview.summary(store)
    steps = tuple(overview.steps(store))
    device = detect_device(store)
    complete = [step.dur_ns for step in steps if not step.partial]
    context = Context(device.type, len(complete), overview.median(complete), sum(complete))
    outcome = evaluate(store, rules, context, by_code.get("TRC001"))
    findings = (*_unreadable_findings(by_code.get("TRC000"), unreadable), *outcome.findings)
    return Report(
        inputs=(*store.inputs_with_issues(), *unreadable),
        device=device,
        summary=summary,
        steps=steps,
        idle_causes=overview.shares(store, overview.IDLE_CAUSES),
        top_device_ops=overview.shares(store, overview.TOP_DEVICE_OPS),
        top_ops=overview.shares(store, overview.TOP_OPS),
        engines=overview.engines(store),
        recipes=overview.recipes(store),
        fallbacks=overview.fallbacks(store),
        findings=findings,
        not_applicable=outcome.not_applicable,
        rules=tuple(rules),
    )


def _unreadable(path: str, error: InputError) -> InputFile:
    return InputFile(path, "trace", None, 0, 0, "unreadable", (ImportIssue("unreadable", 1, str(error)),))


def _unreadable_findings(rule: Rule | None, unreadable: Sequence[InputFile]) -> list[Finding]:
    if rule is None:
        return []
    rows = [(read.path, {"subject": read.path, "error": read.issues[0].message}) for read in unreadable]
    return [replace(make_finding(rule, row), path=path) for path, row in rows]


def empty_report(rules: Sequence[Rule]) -> Report:
    """The report over no input at all: every number is missing, and no rule has anything to say."""
    reasons = tuple(NotApplicable(rule.code, "there is no input") for rule in rules if rule.sql)
    return Report(
        inputs=(),
        device=Device(None, None, 0),
        summary=overview.metrics([]),
        steps=(),
        idle_causes=(),
        top_device_ops=(),
        top_ops=(),
        engines=(),
        recipes=(),
        fallbacks=(),
        findings=(),
        not_applicable=reasons,
        rules=tuple(rules),
    )
