"""The full text report: inputs, verdict, tables and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perftool.engine.report.across_ranks import grouped
from perftool.model.inputs import InputFile
from perftool.model.links import IDLE_TIME
from perftool.model.report import Finding, Metric, NotApplicable, Report
from perftool.model.words import kind_label
from perftool.reporters.chains import chain_title
from perftool.reporters.efficiency import efficiency_notes
from perftool.reporters.escape import one_line
from perftool.reporters.labels import bounds_text, format_metric, listed_metrics
from perftool.reporters.naming import device_word, step_time
from perftool.reporters.serving import serving_lines
from perftool.reporters.sources import shown_sources
from perftool.reporters.terminal.choice import Choice
from perftool.reporters.terminal.groups import group_lines
from perftool.reporters.terminal.tables import (
    chain_table,
    efficiency_table,
    engines_table,
    fallbacks_table,
    memory_table,
    modules_table,
    print_table,
    ranks_table,
    recipes_table,
    shares_table,
    steps_table,
)
from perftool.reporters.verdict import amount_text, overlap_text
from perftool.units import format_bytes, format_ns, format_ratio, quantity

# For a CPU, the report says what bounds the step only if the host waits for at least this share of it.
_NOTICEABLE_WAIT = 0.05
_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_RELATED = 3
_MOST_INPUTS = 8
_MOST_RANKS = 16
_MOST_CODES = 16
_WIDEST_PAGE = 1000


def print_full(report: Report, console: Console, choice: Choice | None = None) -> None:
    """Print ``report``: inputs, verdict, the tables, then the findings selected by ``choice`` (all by default)."""
    choice = choice or Choice()
    report = replace(report, findings=tuple(choice.of(report.findings)[: choice.top]))
    device = device_word(report)
    _print_inputs(report.inputs, console)
    _print_verdict(report, console)
    _print_summary(report, console)
    _print_serving(report, console)
    _print_ranks(report, console)
    _print_table(
        f"{report.run.step_word.capitalize()}s, in ms (the parts add up to the total)",
        steps_table(report.steps, report.run.step_word),
        console,
    )
    _print_bounds(report, console)
    idle = [replace(cause, name=kind_label(cause.name)) for cause in report.idle_causes]
    idle_title = "Time when no op computes, by cause" if device == "CPU" else "Idle time of the device by cause"
    _print_table(idle_title, shares_table(idle), console)
    if report.idle_causes:
        console.print(Text(f"  Each cause explained: {IDLE_TIME}", style="dim"))
    _print_table("Engines", engines_table(report.engines), console)
    _print_table("Ops that fell back to the CPU", fallbacks_table(report.fallbacks), console)
    _print_table("Recipes by device time", recipes_table(report.recipes), console)
    ops_title = f"{device[:1].upper()}{device[1:]} ops by time (overlapping lanes count once)"
    _print_table(ops_title, shares_table(report.top_device_ops), console)
    _print_efficiency(report, console)
    for chain in report.chains:
        _print_table(chain_title(chain, device, report.run.step_word), chain_table(chain), console)
    _print_table("Time on the device by module, including submodules", modules_table(report.modules), console)
    _print_table("Host ops by self time", shares_table(report.top_ops), console)
    _print_memory(report, console)
    _print_findings(report, console)


def _print_memory(report: Report, console: Console) -> None:
    if not report.memory:
        return
    first = report.memory[0]
    where = f"rank {first.rank}, {first.device}" if len(report.ranks) > 1 else first.device
    title = f"What fills the memory at its peak ({where}): {first.whole}"
    _print_table(title, memory_table(report.memory), console)


def _print_serving(report: Report, console: Console) -> None:
    if report.serving:
        _heading("Iterations of the serving engine", console)
        for line in serving_lines(report.serving):
            console.print(Text(f"  {one_line(line)}"))


def _print_inputs(inputs: Sequence[InputFile], console: Console) -> None:
    """Print each input; many traces without issues share one line."""
    plain = [read for read in inputs if read.kind == "trace" and read.status == "ok" and not read.issues]
    many = plain if len(plain) > _MOST_INPUTS else []
    if many:
        size, events = sum(read.bytes for read in many), sum(read.events for read in many)
        facts = f"{format_bytes(size)}, {quantity(events, 'event', 'events')}, of {len(many)} ranks, "
        names = one_line(f"{many[0].path} … {many[-1].path}")
        console.print(Text.assemble(("Read ", "dim"), names, (f"  {facts}", "dim"), "ok"))
    for read in inputs:
        if read not in many:
            _print_input(read, console)


def _print_input(read: InputFile, console: Console) -> None:
    rank = "" if read.rank is None else f", rank {read.rank}"
    facts = f"{format_bytes(read.bytes)}, {quantity(read.events, 'event', 'events')}{rank}"
    style = "" if read.status == "ok" else "yellow"
    console.print(Text.assemble(("Read ", "dim"), one_line(read.path), (f"  {facts}, ", "dim"), (read.status, style)))
    for issue in read.issues:
        console.print(Text(f"  {one_line(issue.message)}", style="yellow"))


def _print_verdict(report: Report, console: Console) -> None:
    verdict = report.verdict
    console.print(Text(f"\n{one_line(verdict.headline)}", style="bold"))
    if verdict.below:
        console.print(Text(one_line(verdict.below)))


def _print_summary(report: Report, console: Console) -> None:
    device = report.device
    named = f"{device.name} ({device.type})" if device.name else device.type
    steps = report.summary["steps"].value
    _heading("Summary", console)
    table = Table(box=None, show_header=False, pad_edge=True, padding=(0, 1, 0, 2))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_row("device", one_line(named or "none seen"), "")
    if steps:
        table.add_row(f"{report.run.step_word}s", f"{steps:.0f}, {' '.join(step_time(report))}", "")
    if report.run.kind:
        table.add_row("run", report.run.kind, "")
    if report.summary["window_ms"].value is not None:
        window = format_metric(report.summary["window_ms"])
        table.add_row("window", window, f"the {report.run.step_word}s" if steps else "the whole recording")
    missing = []
    for label, metric in listed_metrics(report):
        if metric.value is None:
            missing.append(label)
        else:
            table.add_row(label, format_metric(metric), _fraction(metric))
    print_table(table, console)
    if missing:
        console.print(Text("  not known from this input: " + ", ".join(missing), style="dim"))


def _print_ranks(report: Report, console: Console) -> None:
    if len(report.ranks) < 2:
        return
    table = ranks_table(report.ranks, report.findings, report.run.step_word)
    shown, ranks = table.row_count, len(report.ranks)
    selection = f"; the {shown} of {ranks} that differ most" if shown < ranks else ""
    _print_table(f"Ranks, in shares of the window{selection}", table, console)
    loads = sorted((row.compute_ns / row.steps, row.rank) for row in report.ranks if row.compute_ns and row.steps)
    if len(loads) > 1:
        (least, lightest), (most, heaviest) = loads[0], loads[-1]
        mean = sum(load for load, _ in loads) / len(loads)
        each = f"least {format_ns(least)} (rank {lightest}), mean {format_ns(mean)}"
        console.print(
            Text(f"  compute per {report.run.step_word}: {each}, most {format_ns(most)} (rank {heaviest})", style="dim")
        )
    if groups := group_lines(report, noticeable=0.0):
        _heading("Process groups: transfer time, and which ranks wait", console)
        for line in groups:
            console.print(line, soft_wrap=True)


def _print_bounds(report: Report, console: Console) -> None:
    bounds = report.model.bounds if report.model else ()
    # On a CPU, the host always bounds the step, unless it waits.
    others = sum(bound.share for bound in bounds if bound.kind != "host")
    if bounds and (report.device.type != "cpu" or others >= _NOTICEABLE_WAIT):
        _heading(f"What bounds the {report.run.step_word}: {bounds_text(bounds)}", console)


def _print_efficiency(report: Report, console: Console) -> None:
    """Print the rates of the ops that take the most time, compared with the peaks of the device."""
    efficiency = report.efficiency
    if efficiency is None or (efficiency.bounded_ns == 0 and not efficiency.missing):
        return
    _print_table(f"Ops compared with the {device_word(report)}'s peak", efficiency_table(efficiency), console)
    for line in efficiency_notes(efficiency):
        console.print(Text(f"  {one_line(line)}", style="dim"))


def _print_table(title: str, table: Table, console: Console) -> None:
    if table.row_count:
        _heading(title, console)
        print_table(table, console)


def _print_findings(report: Report, console: Console) -> None:
    findings = report.findings
    _heading(f"Findings: {len(findings)}" if findings else "No findings", console)
    if not findings:
        applied = quantity(len(report.rules) - len(report.not_applicable), "rule", "rules")
        console.print(f"  {applied} applied; none fired.")
    for number, (first, *others) in enumerate(grouped(findings), 1):
        _print_finding(number, findings[first], [findings[at] for at in others], report, console)
    if any(finding.gain for finding in findings):
        kinds = "Gains are predicted by replay, tried by `record`, or upper bounds (up to)."
        note = f"{kinds} They overlap, so do not add them up."
        console.print(Text(f"\n{note}", style="dim"))
    if advice := report.advice:
        code = advice[0].code
        console.print(
            Text(f"Start with {code}: habana_perf_tool rule {code} explains it, with an example.", style="dim")
        )
    if report.not_applicable:
        console.print(Text(f"Not applicable to this input: {_skipped(report.not_applicable)}", style="dim"))


def _skipped(rules: Sequence[NotApplicable]) -> str:
    """List the codes of a few rules, or count many."""
    if len(rules) <= _MOST_CODES:
        return ", ".join(rule.code for rule in rules)
    return f"{len(rules)} rules; --output-format json lists the reasons"


def _print_finding(number: int, finding: Finding, others: Sequence[Finding], report: Report, console: Console) -> None:
    gain, per = finding.gain, f" {report.per_step}".rstrip()
    worth = f"{gain.worth}{per} ({format_ratio(gain.share_of_step)})" if gain else ""
    head = Text.assemble(
        f"\n{number:2}. ", (f"{finding.code} {finding.name}", "bold"), "  ",
        (finding.severity, _SEVERITY_STYLE[finding.severity]), ("  " + worth if worth else "", "green"),
    )  # fmt: skip
    console.print(head)
    rank = "" if finding.rank is None else f"rank {finding.rank}: "
    _paragraph(Text(one_line(rank + finding.message)), console)
    if finding.explained_by:
        explained = "the gain excludes the part that {} explains" if finding.gain else "explained by {}"
        _paragraph(Text(explained.format(finding.explained_by), style="dim"), console)
    if finding.fix_gain:
        every = amount_text(finding.fix_gain)
        _paragraph(Text(f"all findings of {finding.code} with this fix: {every}{per}", style="dim"), console)
    if overlap := overlap_text(finding):
        _paragraph(Text(f"the gain {overlap}: do not add them up", style="dim"), console)
    if others:
        ranks = ", ".join(str(one.rank) for one in sorted(others, key=lambda one: one.rank or 0)[:_MOST_RANKS])
        more = f" and {len(others) - _MOST_RANKS} more" if len(others) > _MOST_RANKS else ""
        _paragraph(Text(f"also on rank {ranks}{more}", style="dim"), console)
    _paragraph(Text(_unwrapped(finding.why), style="dim"), console)
    _paragraph(Text.assemble(("Fix: ", "bold"), one_line(_unwrapped(finding.fix))), console)
    if code := shown_sources(finding):
        _paragraph(Text.assemble(("At: ", "bold"), one_line(code)), console)
    if finding.url:
        _paragraph(Text(f"more: {finding.url}", style="dim"), console)
    for place in finding.related[:_RELATED]:
        step = "" if place.step is None else f"{report.run.step_word} {place.step}, "
        at = f"{step}ts {place.ts_ns} ns, {format_ns(place.dur_ns or 0)}  {place.name or ''}"
        _paragraph(Text(one_line(f"see {at.rstrip()}"), style="dim"), console)


def _paragraph(text: Text, console: Console) -> None:
    """Print ``text`` indented: wrapped on a terminal, on one line in a pipe."""
    if console.is_terminal or console.width < _WIDEST_PAGE:
        console.print(Padding(text, (0, 0, 0, 4)))
    else:
        console.print(Text("    ") + text, soft_wrap=True)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def _heading(title: str, console: Console) -> None:
    console.print(Text(f"\n{one_line(title)}", style="bold"))


def _fraction(metric: Metric) -> Text:
    if metric.numerator is None or metric.denominator is None:
        return Text("")
    return Text(f"{format_ns(metric.numerator * 1e6)} of {format_ns(metric.denominator * 1e6)}", style="dim")
