"""Files in, report out: the one way through readers, store and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from perftool.engine.evaluate import Context, evaluate, make_finding
from perftool.engine.pack import builtin_folder, load_pack
from perftool.errors import InputError
from perftool.model.inputs import ImportIssue, InputFile
from perftool.model.report import BREAKDOWN, Device, Finding, Metric, NotApplicable, Report, Share, Step
from perftool.model.rule import Rule
from perftool.readers.discover import Inputs, find_inputs
from perftool.store.device import detect_device
from perftool.store.readings import read_text
from perftool.store.trace_store import TraceStore

# Called with what is being done and how many bytes of text were read so far.
Progress = Callable[[str, int], None]
_TOP = 15


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
    summary = _summary(store)
    steps = tuple(_steps(store))
    device = detect_device(store)
    complete = [step.dur_ns for step in steps if not step.partial]
    context = Context(device.type, len(complete), _median(complete), sum(complete))
    outcome = evaluate(store, rules, context, by_code.get("TRC001"))
    findings = (*_unreadable_findings(by_code.get("TRC000"), unreadable), *outcome.findings)
    return Report(
        inputs=(*store.inputs_with_issues(), *unreadable),
        device=device,
        summary=summary,
        steps=steps,
        idle_causes=_shares(store, _IDLE_CAUSES),
        top_device_ops=_shares(store, _TOP_DEVICE_OPS),
        top_ops=_shares(store, _TOP_OPS),
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


# Always present, in this order; those the input does not show have no value.
METRICS: tuple[tuple[str, str], ...] = (
    ("steps", "count"), ("step_time_ms", "ms"), ("window_ms", "ms"),
    ("device_busy_ratio", "ratio"), ("device_idle_ratio", "ratio"), ("kernel_busy_ratio", "ratio"),
    ("kernel_time_ms", "ms"), ("collective_time_ms", "ms"), ("exposed_collective_ratio", "ratio"),
    ("mme_time_ms", "ms"), ("tpc_time_ms", "ms"), ("dma_time_ms", "ms"), ("mme_tpc_overlap_ms", "ms"),
    ("engines_idle_ms", "ms"), ("partition_mme_ms", "ms"), ("partition_tpc_ms", "ms"), ("partition_dma_ms", "ms"),
    ("partition_other_ms", "ms"), ("partition_idle_ms", "ms"), ("mme_low_precision_ratio", "ratio"), ("device_host_overlap_ratio", "ratio"),
    ("dataloader_ratio", "ratio"), ("graph_build_ratio", "ratio"), ("input_copy_ratio", "ratio"),
    ("compile_ratio", "ratio"), ("compilations", "count"), ("fallback_ops", "count"),
    ("syncs_per_step", "count"), ("peak_memory_bytes", "bytes"),
)  # fmt: skip


def empty_report(rules: Sequence[Rule]) -> Report:
    """The report over no input at all: every number is missing, and no rule has anything to say."""
    reasons = tuple(NotApplicable(rule.code, "there is no input") for rule in rules if rule.sql)
    return Report((), Device(None, None, 0), _metrics([]), (), (), (), (), (), reasons, tuple(rules))


def _summary(store: TraceStore) -> dict[str, Metric]:
    return _metrics(store.rows("summary"))


def _metrics(rows: Iterable[Mapping[str, Any]]) -> dict[str, Metric]:
    found = {row["metric"]: row for row in rows}
    empty: dict[str, Any] = {"value": None, "numerator": None, "denominator": None}
    return {
        name: Metric(name, row["value"], unit, row["numerator"], row["denominator"])  # type: ignore[arg-type]
        for name, unit in METRICS
        for row in [found.get(name, empty)]
    }


def _steps(store: TraceStore) -> Iterable[Step]:
    for row in store.rows("steps"):
        parts = {part: row[part] for part in BREAKDOWN}
        yield Step(row["rank"], row["name"], row["ts"], row["dur"], parts, row["partial"])


_IDLE_CAUSES = """
SELECT cause AS name, sum(dur)::BIGINT AS total_ns, count(*) AS count,
       sum(dur) / (SELECT sum("end" - ts) FROM _windows) AS share
FROM gap_causes GROUP BY cause ORDER BY total_ns DESC, name
"""
_TOP_DEVICE_OPS = f"""
SELECT d.name, sum(least(d."end", w."end") - greatest(d.ts, w.ts))::BIGINT AS total_ns, count(*) AS count,
       sum(least(d."end", w."end") - greatest(d.ts, w.ts)) / (SELECT sum("end" - ts) FROM _windows) AS share
FROM device_ops AS d JOIN _windows AS w ON w.rank = d.rank AND d.ts < w."end" AND d."end" > w.ts
WHERE d.valid GROUP BY d.name ORDER BY total_ns DESC, d.name LIMIT {_TOP}
"""
_TOP_OPS = f"""
SELECT o.name, sum(o.self_ns)::BIGINT AS total_ns, count(*) AS count,
       sum(o.self_ns) / (SELECT sum("end" - ts) FROM _windows) AS share
FROM ops AS o JOIN _windows AS w ON w.rank = o.rank AND o.ts < w."end" AND o."end" > w.ts
WHERE NOT starts_with(o.name, 'ProfilerStep#')
GROUP BY o.name ORDER BY total_ns DESC, o.name LIMIT {_TOP}
"""


def _shares(store: TraceStore, sql: str) -> tuple[Share, ...]:
    store.build(["gap_causes", "device_ops", "ops", "_windows"])
    return tuple(Share(**row) for row in store.select(sql))


def _median(values: Sequence[int]) -> int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
