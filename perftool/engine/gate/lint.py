"""Lints a run for CI: assigns findings to files, marks accepted ones, and decides whether the others fail the check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from perftool.engine.analysis import Run, empty_report
from perftool.engine.gate.baseline import read_baseline, subtract
from perftool.engine.gate.budgets import Budget, check_budgets, parse_budgets
from perftool.engine.report.portable import file_of, make_portable, shown_paths
from perftool.engine.report.source_places import place_sources
from perftool.engine.rules.fingerprint import fingerprint
from perftool.engine.settings.settings import Settings
from perftool.errors import InputError, NoInputError
from perftool.model.choices import CONFIDENCES, SEVERITIES
from perftool.model.inputs import UNUSED
from perftool.model.lint import BaselineEntry, LintFinding, LintReport
from perftool.model.metrics import metric_kinds
from perftool.model.report import Finding, Report
from perftool.model.rule import Rule
from perftool.readers.trace.memory_snapshot import is_snapshot_file


@dataclass(frozen=True)
class LintPlan:
    """The setup of a lint run, apart from its inputs. The constructor parses the budgets and reads the baseline, so
    that errors in them are reported before the inputs are read. Unless ``whole`` is set, the report of the result lacks
    most numbers if the rules find nothing to advise."""

    rules: Sequence[Rule]
    settings: Settings
    root: Path
    stdin_name: str | None = None
    allow_empty: bool = False
    whole: bool = True
    budgets: tuple[Budget, ...] = field(init=False)
    accepted: tuple[BaselineEntry, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        budgets = parse_budgets(self.settings.limits, metric_kinds())
        baseline = self.settings.baseline
        object.__setattr__(self, "budgets", budgets)
        object.__setattr__(self, "accepted", None if baseline is None else read_baseline(baseline))


def lint_run(run: Run, plan: LintPlan) -> LintReport:
    """Lint ``run``, which uses the rules of ``plan``.

    Raise InputError if no input can be read. Lint must not pass an input that it has not checked. So it raises
    NoInputError if the trace of a rank has no event with a duration, if nothing was recognised in the inputs, or if
    nothing was recognised in a file that the user named. It also raises InputError if a benchmark result, a metrics
    page or the load of a server is not used.
    """
    report = run.report if plan.whole or plan.budgets else run.report_for_gate
    _require_used(report, plan)
    if not plan.allow_empty:
        _require_events(report, plan)
        _require_records(report, plan)
        if empty := run.unrecognised(report):
            shown = shown_paths(empty, plan.root, plan.stdin_name)
            what = unrecognised_text([shown[path] for path in empty])
            raise NoInputError(f"{what}, so nothing was checked there; --allow-empty accepts an empty input")
    broken = check_budgets(plan.budgets, report.summary, run.query, plan.rules)
    return judge(replace(report, findings=(*report.findings, *broken)), plan)


def lint_nothing(plan: LintPlan) -> LintReport:
    """Return the result of linting without any input."""
    return judge(empty_report(plan.rules), plan)


def _require_events(report: Report, plan: LintPlan) -> None:
    traces = [read for read in report.inputs if read.kind == "trace" and read.status != "unreadable"]
    silent = {one.rank for one in report.ranks if one.status == "ok" and not one.recorded_ns}
    nothing = not any(one.recorded_ns for one in report.ranks)
    # An allocator snapshot next to the traces becomes a separate rank, which has no times.
    empty = [read.path for read in traces if nothing or (read.rank in silent and not is_snapshot_file(read.path))]
    if not empty:
        return
    shown = shown_paths(empty, plan.root, plan.stdin_name)
    first, more = shown[empty[0]], len(empty) - 1
    what = f"{first} and {more} more trace{'s' if more > 1 else ''} have" if more else f"{first}: the trace has"
    checked = "nothing was checked" if nothing else "not every rank was checked"
    raise NoInputError(f"{what} no event with a duration, so {checked}; --allow-empty accepts an empty input")


def _require_records(report: Report, plan: LintPlan) -> None:
    """Raise NoInputError, naming the files, unless at least one event or record was read."""
    read = [file for file in report.inputs if file.kind != "device"]
    if any(file.events for file in read):
        return
    reasons = [issue.message for file in read if file.status == "unreadable" for issue in file.issues]
    others = [file for file in read if file.status != "unreadable"]
    shown = shown_paths([file.path for file in others], plan.root, plan.stdin_name)
    reasons += [f"{shown[file.path]}: {file.issues[0].message}" for file in others if file.issues]
    if empty := [shown[file.path] for file in others if not file.issues]:
        reasons.append(unrecognised_text(empty))
    raise NoInputError(f"{'; '.join(reasons)}, so nothing was checked; --allow-empty accepts an empty input")


def _require_used(report: Report, plan: LintPlan) -> None:
    """Raise InputError if a benchmark result, a metrics page or the load of a server is not used."""
    unused = [(read.path, issue.message) for read in report.inputs for issue in read.issues if issue.kind == UNUSED]
    if not unused:
        return
    (path, why), *rest = unused
    shown = shown_paths([path], plan.root, plan.stdin_name)[path]
    more = f" (and {len(rest)} more)" if rest else ""
    way = "check it in a separate call, or exclude it with --exclude"
    raise InputError(f"{shown}: {why}{more}; a gate does not skip results by itself, so {way}")


def unrecognised_text(paths: Iterable[str]) -> str:
    """Return a clause about files in which nothing was recognised."""
    first, *more = paths
    what = f"{first} and {len(more)} more file{'s' if more[1:] else ''} contain" if more else f"{first} contains"
    return f"{what} nothing that this program recognises"


def judge(report: Report, plan: LintPlan) -> LintReport:
    """Sort and filter the findings of ``report``, and compare them with the baseline."""
    shown = shown_paths([read.path for read in report.inputs], plan.root, plan.stdin_name)
    portable = place_sources(make_portable(report, shown), (plan.root, *plan.settings.source_roots), shorten=True)
    placed = [_place(finding, portable, plan.settings.baseline_paths) for finding in portable.findings]
    wanted = [found for found in placed if _severe(found.finding, plan.settings)]
    kept = sorted((found for found in wanted if not _ignores(found, plan.settings)), key=_order)
    idle = tuple(_idle_ignores(placed, list(shown.values()), plan))
    stale: Sequence[BaselineEntry] = ()
    if plan.accepted is not None:
        kept, stale = subtract(kept, plan.accepted, [rule.code for rule in plan.rules])
    judged = _judged(portable, kept, stale, plan.settings)
    return replace(judged, idle_ignores=idle, hidden=len(placed) - len(wanted))


def accept(result: LintReport, entries: Sequence[BaselineEntry], settings: Settings) -> LintReport:
    """Judge ``result`` again, with ``entries`` as the baseline."""
    marked, stale = subtract(result.findings, entries, [rule.code for rule in result.rules])
    judged = _judged(result.report, marked, stale, settings)
    return replace(judged, idle_ignores=result.idle_ignores, hidden=result.hidden)


def _judged(
    report: Report, findings: Sequence[LintFinding], stale: Iterable[BaselineEntry], settings: Settings
) -> LintReport:
    failing = SEVERITIES[: 0 if settings.fail_on == "never" else _rank(SEVERITIES, settings.fail_on) + 1]
    fails = any(found.finding.severity in failing and not found.suppressed for found in findings)
    listed = replace(report, findings=tuple(found.finding for found in findings))
    return LintReport(listed, tuple(findings), tuple(stale), fails and not settings.exit_zero)


def _place(finding: Finding, report: Report, by_path: bool) -> LintFinding:
    file = file_of(finding, report.inputs) if report.inputs else ""
    stable = fingerprint(finding.code, finding.subject, file if by_path else None)
    return LintFinding(replace(finding, fingerprint=stable), file, step_word=report.run.step_word)


def _severe(finding: Finding, settings: Settings) -> bool:
    """Whether ``finding`` reaches the minimum severity and confidence."""
    severe = _rank(SEVERITIES, finding.severity) <= _rank(SEVERITIES, settings.min_severity)
    return severe and _rank(CONFIDENCES, finding.confidence) <= _rank(CONFIDENCES, settings.min_confidence)


def _ignores(found: LintFinding, settings: Settings) -> set[tuple[str, str]]:
    """Return the per-file ignores that suppress ``found``, as (pattern, selector)."""
    return {
        (pattern, selector.text)
        for pattern, chosen in settings.file_ignores
        if _matches(found.file, pattern)
        for selector in chosen
        if selector.means(found.finding.code, found.finding.name)
    }


def _idle_ignores(placed: Iterable[LintFinding], files: Sequence[str], plan: LintPlan) -> Iterator[str]:
    """Yield the per-file ignores that match a file and a rule of this run but suppress no finding."""
    used = {ignore for found in placed for ignore in _ignores(found, plan.settings)}
    for pattern, chosen in plan.settings.file_ignores:
        if not any(_matches(file, pattern) for file in files):
            continue
        for selector in chosen:
            ran = any(selector.means(rule.code, rule.name) for rule in plan.rules)
            if ran and (pattern, selector.text) not in used:
                yield f"{pattern}: {selector.text} (from {selector.origin})"


def _matches(file: str, pattern: str) -> bool:
    return any(fnmatch(name, pattern) for name in (file, Path(file).name))


def _rank(order: Sequence[str], value: str) -> int:
    return order.index(value)


def _order(found: LintFinding) -> tuple[int | str, ...]:
    """Return the sort key: severity, then gain, then names, so that the order is the same in every run."""
    finding = found.finding
    gain = finding.gain.ns_per_step if finding.gain else -1
    place = finding.location
    return (
        _rank(SEVERITIES, finding.severity), -gain, finding.code, found.file, finding.subject,
        finding.rank if finding.rank is not None else -1, place.ts_ns if place.ts_ns is not None else -1,
        finding.message,
    )  # fmt: skip
