"""A report from a store and what the rules said about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from perftool.engine.report import overview
from perftool.engine.report.causes import causes
from perftool.engine.report.efficiency import EFFICIENCY_TABLES, efficiency
from perftool.engine.report.verdict import Told, verdict
from perftool.engine.rules.asking import Context
from perftool.engine.rules.evaluate import Outcome, make_finding
from perftool.engine.rules.predict import slowest
from perftool.errors import InputError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.report import Device, Finding, Report, Step
from perftool.model.rule import Rule
from perftool.store.captures import read_capture
from perftool.store.ranks import rank_of
from perftool.store.readings import Reading, read_text
from perftool.store.trace_store import TraceStore

_TABLES = (
    "summary", "steps", "run_kinds", "ranks", "_idle_totals", "_device_op_totals", "_op_totals", "engines", "recipes",
    "fallbacks", "device_windows", "frames", "feeding_tracks", *EFFICIENCY_TABLES,
)  # fmt: skip


def compose(
    store: TraceStore, rules: Sequence[Rule], device: Device, evaluated: Callable[[Context], Outcome]
) -> Report:
    """The report over ``store``; ``evaluated`` gives what ``rules`` find once the context is known."""
    # All at once, so that there is always one that the second core can make.
    store.build(_TABLES)
    summary = overview.summary(store)
    run = overview.run(store)
    steps = tuple(overview.steps(store))
    ranks = overview.ranks(store)
    outcome = _asked(store, rules, steps, device, evaluated)
    inputs = (*store.inputs_with_issues(), *store.unreadable)
    findings = outcome.findings
    idle_causes = overview.shares(store, overview.IDLE_CAUSES)
    device_ops = overview.shares(store, overview.TOP_DEVICE_OPS)
    model = slowest(outcome.models)
    told = Told(
        inputs, summary, idle_causes, findings, outcome.not_applicable, rules, causes(store, findings, rules),
        device_ops, steps, overview.roofline(store), model,
    )  # fmt: skip
    return Report(
        inputs=inputs,
        device=device,
        summary=summary,
        steps=steps,
        idle_causes=idle_causes,
        top_device_ops=device_ops,
        top_ops=overview.shares(store, overview.TOP_OPS),
        engines=overview.engines(store),
        recipes=overview.recipes(store),
        fallbacks=overview.fallbacks(store),
        findings=findings,
        not_applicable=outcome.not_applicable,
        verdict=verdict(told),
        run=run,
        rules=tuple(rules),
        ranks=ranks,
        model=model,
        replayed_run=outcome.run,
        efficiency=efficiency(store),
    )


def conclude_only(
    store: TraceStore, rules: Sequence[Rule], device: Device, evaluated: Callable[[Context], Outcome]
) -> Outcome:
    """What ``rules`` find over ``store``, as ``compose`` has it, without the numbers of a report."""
    return _asked(store, rules, tuple(overview.steps(store)), device, evaluated)


def _asked(
    store: TraceStore,
    rules: Sequence[Rule],
    steps: Sequence[Step],
    device: Device,
    evaluated: Callable[[Context], Outcome],
) -> Outcome:
    outcome = evaluated(context_of(store, steps, device.type))
    return replace(outcome, findings=(*_unreadable_findings(rules, store.unreadable), *outcome.findings))


def context_of(store: TraceStore, steps: Sequence[Step], device: str | None) -> Context:
    """What rules may refer to: the windows of all ranks, and the median of the complete ones of ``steps``."""
    store.build(["windows"])
    whole = store.select("SELECT sum(steps)::BIGINT AS steps, sum(dur)::BIGINT AS ns FROM windows")[0]
    median_ns = overview.median([step.dur_ns for step in steps if not step.partial])
    return Context(device, whole["steps"] or 0, median_ns, whole["ns"] or 0, _simulated(store))


def _simulated(store: TraceStore) -> bool:
    """Whether no trace of ``store`` was recorded."""
    traces = [read for read in store.inputs if read.kind == "trace"]
    return bool(traces) and all(any(issue.kind == "simulated" for issue in read.issues) for read in traces)


def unreadable(path: str, error: InputError) -> InputFile:
    """An input of which nothing could be read; its name may still tell the rank."""
    return InputFile(path, "trace", rank_of(path, {}), 0, 0, "unreadable", (ImportIssue("unreadable", 1, str(error)),))


def read_texts(paths: Iterable[str], captures: Iterable[str] = ()) -> tuple[list[Reading], list[InputFile]]:
    """What ``paths`` (logs, metrics, configuration) and ``captures`` say, and those that cannot be read."""
    readings, failed = [], []
    wanted = [*((path, read_text) for path in paths), *((path, read_capture) for path in captures)]
    for path, read in wanted:
        try:
            readings.append(read(path))
        except InputError as error:
            failed.append(unreadable(path, error))
    return readings, failed


def require_input(store: TraceStore) -> None:
    """Raise InputError, with the reasons, when no input of ``store`` could be read."""
    if not store.inputs and not store.readings:
        raise InputError("; ".join(issue.message for read in store.unreadable for issue in read.issues))


def _unreadable_findings(rules: Sequence[Rule], files: Sequence[InputFile]) -> list[Finding]:
    rule = next((rule for rule in rules if rule.code == "TRC000"), None)
    if rule is None:
        return []
    rows = [(read.path, {"subject": read.path, "error": read.issues[0].message}) for read in files]
    return [replace(make_finding(rule, row), path=path) for path, row in rows]
