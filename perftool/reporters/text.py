"""The report for people: what was read, where the time goes, what to change first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perftool.model.inputs import InputFile
from perftool.model.report import BREAKDOWN, Finding, Metric, Report, Share, Step
from perftool.units import format_bytes, format_count, format_ns, format_ratio

# What the summary calls its numbers on the terminal.
_LABELS = {
    "device_busy_ratio": "device busy",
    "device_idle_ratio": "device idle",
    "kernel_busy_ratio": "kernels running",
    "kernel_time_ms": "compute",
    "collective_time_ms": "collectives",
    "exposed_collective_ratio": "exposed collectives",
    "mme_time_ms": "MME busy (union)",
    "tpc_time_ms": "TPC busy (union)",
    "dma_time_ms": "DMA busy (union)",
    "mme_tpc_overlap_ms": "MME and TPC together",
    "engines_idle_ms": "all engines idle",
    "mme_low_precision_ratio": "MME below 32 bit",
    "device_host_overlap_ratio": "host works while device busy",
    "dataloader_ratio": "waiting for data",
    "graph_build_ratio": "building graphs",
    "input_copy_ratio": "copying inputs",
    "compile_ratio": "compiling",
    "compilations": "compilations",
    "fallback_ops": "ops fallen back to the CPU",
    "syncs_per_step": "host waits per step",
    "peak_memory_bytes": "peak device memory",
}
_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_MOST_STEPS = 8
_MOST_SHARES = 10
_LONGEST_NAME = 72
_RELATED = 3
_WIDEST_PAGE = 1000


def print_report(report: Report, console: Console) -> None:
    """Print ``report``: inputs, summary, steps, idle time, rankings, then the findings, most worthwhile first."""
    for read in report.inputs:
        _print_input(read, console)
    _print_summary(report, console)
    _print_steps(report.steps, console)
    _print_shares("Idle time of the device by cause", report.idle_causes, console)
    _print_shares("Top device ops", report.top_device_ops, console)
    _print_shares("Top host ops (self time)", report.top_ops, console)
    _print_findings(report, console)


def _print_input(read: InputFile, console: Console) -> None:
    rank = "" if read.rank is None else f", rank {read.rank}"
    facts = f"{format_bytes(read.bytes)}, {format_count(read.events)} events{rank}"
    style = "" if read.status == "ok" else "yellow"
    console.print(Text.assemble(("Read ", "dim"), read.path, (f"  {facts}, ", "dim"), (read.status, style)))
    for issue in read.issues:
        console.print(Text(f"  {issue.message}", style="yellow"))


def _print_summary(report: Report, console: Console) -> None:
    device = report.device
    named = " ".join(part for part in (device.name, f"({device.type})" if device.type else "") if part)
    steps = report.summary["steps"].value
    _heading("Summary", console)
    table = _grid(3)
    table.add_row("device", named or "none seen", "")
    if steps:
        table.add_row("steps", f"{steps:.0f}, median {_value(report.summary['step_time_ms'])}", "")
    if report.summary["window_ms"].value is not None:
        table.add_row("window", _value(report.summary["window_ms"]), "the steps" if steps else "the whole recording")
    missing = []
    for name, label in _LABELS.items():
        metric = report.summary[name]
        if metric.value is None:
            missing.append(label)
        else:
            table.add_row(label, _value(metric), _fraction(metric))
    console.print(table)
    if missing:
        console.print(Text("  not in this input: " + ", ".join(missing), style="dim"))


def _print_steps(steps: Sequence[Step], console: Console) -> None:
    if not steps:
        return
    _heading("Steps, in ms; the parts add up", console)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("  step", no_wrap=True)
    for column in ("total", *BREAKDOWN):
        table.add_column(column, justify="right", no_wrap=True)
    shown = steps if len(steps) <= _MOST_STEPS else [*steps[: _MOST_STEPS - 2], *steps[-2:]]
    ranks = len({step.rank for step in steps}) > 1
    for at, step in enumerate(shown):
        if len(shown) < len(steps) and at == _MOST_STEPS - 2:
            table.add_row(f"  … {len(steps) - len(shown)} more", *[""] * (len(BREAKDOWN) + 1))
        name = f"  {f'rank {step.rank} ' if ranks else ''}{step.name}{' (partial)' if step.partial else ''}"
        parts = [_ms(step.breakdown_ns[part]) for part in BREAKDOWN]
        table.add_row(Text(name), _ms(step.dur_ns), *parts, style="dim" if step.partial else None)
    console.print(table)


def _print_shares(title: str, rows: Sequence[Share], console: Console) -> None:
    if not rows:
        return
    _heading(title, console)
    table = _grid(4)
    for row in rows[:_MOST_SHARES]:
        name = row.name if len(row.name) <= _LONGEST_NAME else row.name[: _LONGEST_NAME - 1] + "…"
        count = f"{format_count(row.count)} times"
        table.add_row(Text(name), format_ns(row.total_ns), format_ratio(row.share), Text(count, style="dim"))
    console.print(table)


def _print_findings(report: Report, console: Console) -> None:
    findings = report.findings
    _heading(f"Findings: {len(findings)}" if findings else "No findings", console)
    if not findings:
        console.print(f"  {len(report.rules) - len(report.not_applicable)} rules applied, all quiet.")
    for number, finding in enumerate(findings, 1):
        _print_finding(number, finding, console)
    if any(finding.gain for finding in findings):
        note = "Gains are estimates, upper bounds from the evidence; they overlap and do not add up."
        console.print(Text(f"\n{note}", style="dim"))
    if report.not_applicable:
        codes = ", ".join(rule.code for rule in report.not_applicable)
        console.print(Text(f"Not applicable to this input: {codes}", style="dim"))


def _print_finding(number: int, finding: Finding, console: Console) -> None:
    gain = finding.gain
    worth = f"up to {format_ns(gain.ns_per_step)} per step ({format_ratio(gain.share_of_step)})" if gain else ""
    head = Text.assemble(
        f"\n{number:2}. ", (f"{finding.code} {finding.name}", "bold"), "  ",
        (finding.severity, _SEVERITY_STYLE[finding.severity]), ("  " + worth if worth else "", "green"),
    )  # fmt: skip
    console.print(head)
    rank = "" if finding.rank is None else f"rank {finding.rank}: "
    _paragraph(Text(rank + finding.message), console)
    _paragraph(Text(_unwrapped(finding.why), style="dim"), console)
    _paragraph(Text.assemble(("Fix: ", "bold"), _unwrapped(finding.fix)), console)
    for place in finding.related[:_RELATED]:
        step = "" if place.step is None else f"step {place.step}, "
        at = f"{step}ts {place.ts_ns} ns, {format_ns(place.dur_ns or 0)}  {place.name or ''}"
        _paragraph(Text("see " + at.rstrip(), style="dim"), console)


def _paragraph(text: Text, console: Console) -> None:
    """Indented and wrapped for people; one line for pipes, where a break would split what others search for."""
    if console.is_terminal or console.width < _WIDEST_PAGE:
        console.print(Padding(text, (0, 0, 0, 4)))
    else:
        console.print(Text("    ") + text, soft_wrap=True)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def _heading(title: str, console: Console) -> None:
    console.print(Text(f"\n{title}", style="bold"))


def _grid(columns: int) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=False)
    for _ in range(columns - 1):
        table.add_column(justify="right" if columns > 3 else "left", no_wrap=True)
    table.pad_edge = False
    return table


def _value(metric: Metric) -> str:
    assert metric.value is not None
    if metric.unit == "ratio":
        return format_ratio(metric.value)
    if metric.unit == "ms":
        return format_ns(metric.value * 1e6)
    return format_bytes(metric.value) if metric.unit == "bytes" else format_count(metric.value)


def _fraction(metric: Metric) -> Text:
    if metric.numerator is None or metric.denominator is None:
        return Text("")
    return Text(f"{format_ns(metric.numerator * 1e6)} of {format_ns(metric.denominator * 1e6)}", style="dim")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"
