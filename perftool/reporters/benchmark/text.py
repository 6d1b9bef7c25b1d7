"""Benchmark results for people: a block for each as it ends, and the table of what was validated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perftool.model.benchmark import BenchmarkResult, Measurement, Proof, Ratio
from perftool.reporters.terminal.tables import print_table
from perftool.units import NS_PER_S, format_bytes, format_ns, format_ratio

_STATUS_STYLE = {"validated": "bold green", "simulated": "bold cyan", "skipped": "yellow", "failed": "bold red"}


def print_result(result: BenchmarkResult, console: Console) -> None:
    """One benchmark: both forms, the ratio at each size, and what the rules said."""
    status = Text(result.status, style=_STATUS_STYLE[result.status])
    console.print(Text.assemble((result.name, "bold"), "  ", result.summary, "  ", status))
    if result.measurements:
        console.print(f"  naive    {result.measurements[0].naive.title}", markup=False)
        console.print(f"  advised  {result.measurements[0].advised.title}", markup=False)
    for measured in result.measurements:
        console.print(f"  {measurement_line(measured)}", markup=False)
    if result.proof is not None:
        console.print(f"  {proof_line(result.proof)}", markup=False)
    if result.reason is not None:
        console.print(Text(f"  {result.reason}", style="yellow"))
    console.print()


def measurement_line(measured: Measurement) -> str:
    """Size, times, ratio with its interval, and what else is worth knowing about one measurement."""
    naive, advised, ratio = measured.naive, measured.advised, measured.ratio
    heap = ", tuned heap" if measured.heap == "tuned" else ""
    parts = [
        f"{measured.size}{heap}: {format_ns(naive.seconds * NS_PER_S)} -> {format_ns(advised.seconds * NS_PER_S)}",
        f"{ratio_text(measured)} ({measured.clock} time, {measured.rounds} rounds, threads: {measured.threads})",
    ]
    if naive.peak_bytes is not None and advised.peak_bytes is not None:
        parts.append(f"memory {format_bytes(naive.peak_bytes)} -> {format_bytes(advised.peak_bytes)}")
    parts.append(f"largest difference {measured.max_error:.1e}")
    if ratio.verdict == "no win":
        parts.append("no win: the interval holds 1")
    if measured.noisy:
        parts.append("noisy: the rounds scatter by more than 20 %")
    return "; ".join(parts)


def ratio_text(measured: Measurement) -> str:
    """The ratio with its interval and the confidence of that."""
    ratio = measured.ratio
    if measured.quantity == "memory":
        return f"{ratio.value:.2f} x less memory"
    if ratio.verdict == "unknown":
        return f"{ratio.value:.2f} x faster in one round"
    return f"{ratio.value:.2f} x faster, {ratio.low:.2f} to {ratio.high:.2f} at {ratio.confidence:.0%}"


def proof_line(proof: Proof) -> str:
    """What the rules said about the two traces, and what that was worth."""
    source = "simulated traces: " if proof.simulated else ""
    before = ", ".join(proof.fired_before) or "nothing"
    after = ", ".join(proof.fired_after) or "nothing"
    text = f"{source}{before} fires before, {after} after"
    if proof.gain_estimated is not None:
        text += f"; estimated gain up to {format_ratio(proof.gain_estimated)} of the step"
    if proof.gain_predicted is not None:
        text += f", predicted {format_ratio(proof.gain_predicted)}"
    if proof.gain is not None:
        text += f", {'simulated' if proof.simulated else 'measured'} {format_ratio(proof.gain)}"
    return text


def print_results(results: Sequence[BenchmarkResult], console: Console) -> None:
    """Every benchmark, one after the other."""
    for result in results:
        print_result(result, console)


def print_validation(results: Sequence[BenchmarkResult], console: Console) -> None:
    """The table that closes the loop: rules before and after, estimated against measured gain."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True)
    for result in results:
        cells = validation_cells(result)
        table.add_row(Text(cells[0], style=_STATUS_STYLE[result.status]), *map(Text, cells[1:]))
    # Reasons are sentences.
    table.columns[-1].no_wrap = False
    print_table(table, console)
    counts = {status: sum(result.status == status for result in results) for status in _STATUS_STYLE}
    console.print()
    console.print(", ".join(f"{count} {status}" for status, count in counts.items() if count), markup=False)


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("status", "left"), ("benchmark", "left"), ("before", "left"), ("after", "left"), ("gain <=", "right"),
    ("predicted", "right"), ("measured", "right"), ("simulated", "right"), ("ratio", "right"), ("interval", "left"),
    ("difference", "right"), ("reason", "left"),
)  # fmt: skip
COLUMNS = tuple(name for name, _ in _COLUMNS)


def _interval(ratio: Ratio) -> str:
    return "one round" if ratio.verdict == "unknown" else f"{ratio.low:.2f} to {ratio.high:.2f}"


def validation_cells(result: BenchmarkResult) -> tuple[str, ...]:
    """One row of the validation table, in the order of ``COLUMNS``."""
    proof = result.proof
    first = result.measurements[0] if result.measurements else None
    error = first.max_error if first else proof.max_error if proof else None
    gain = format_ratio(proof.gain) if proof and proof.gain is not None else "-"
    return (
        result.status,
        result.name,
        (", ".join(proof.fired_before) or "nothing") if proof else "-",
        (", ".join(proof.fired_after) or "nothing") if proof else "-",
        format_ratio(proof.gain_estimated) if proof and proof.gain_estimated is not None else "-",
        format_ratio(proof.gain_predicted) if proof and proof.gain_predicted is not None else "-",
        gain if proof and not proof.simulated else "-",
        gain if proof and proof.simulated else "-",
        f"{first.ratio.value:.2f}" if first else "-",
        _interval(first.ratio) if first else "-",
        "-" if error is None else f"{error:.1e}",
        result.reason or "",
    )
