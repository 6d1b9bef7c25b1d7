"""Benchmark results as text: a block for each finished benchmark, and the validation table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from perftool.model.benchmark import BenchmarkResult, Measurement, Proof
from perftool.reporters.benchmark.table import STATUS_STYLE, ValidationTable
from perftool.units import NS_PER_S, format_bytes, format_ns, format_ratio


def print_result(result: BenchmarkResult, console: Console) -> None:
    """Print one benchmark: the naive and the advised form, the ratio at each size, and the rules that fired."""
    status = Text(result.status, style=STATUS_STYLE[result.status])
    console.print(Text.assemble((result.name, "bold"), "  ", result.summary, "  ", status))
    if result.measurements:
        console.print(f"  naive    {result.measurements[0].naive.title}")
        console.print(f"  advised  {result.measurements[0].advised.title}")
        best = result.measurements[0].torch
        if best is not None:
            console.print(f"  torch    {best.title}")
    for measured in result.measurements:
        console.print(f"  {measurement_line(measured)}")
    if result.proof is not None:
        console.print(f"  {proof_line(result.proof)}")
    if result.reason is not None:
        console.print(Text(f"  {result.reason}", style="yellow"))
    console.print()


def measurement_line(measured: Measurement) -> str:
    """Format a measurement as a line: size, times, ratio, memory, error, and doubts about the result."""
    naive, advised, ratio = measured.naive, measured.advised, measured.ratio
    heap = ", tuned heap" if measured.heap == "tuned" else ""
    parts = [
        f"{measured.size}{heap}: {format_ns(naive.seconds * NS_PER_S)} -> {format_ns(advised.seconds * NS_PER_S)}",
        f"{ratio_text(measured)} ({measured.clock} time, {measured.rounds} rounds, threads: {measured.threads})",
    ]
    if measured.torch is not None and measured.torch_ratio is not None:
        took = format_ns(measured.torch.seconds * NS_PER_S)
        parts.append(f"torch's own best {took}, {measured.torch_ratio.value:.2f}x as fast as the naive form")
    if naive.peak_bytes is not None and advised.peak_bytes is not None:
        parts.append(f"memory {format_bytes(naive.peak_bytes)} -> {format_bytes(advised.peak_bytes)}")
    parts.append(f"largest difference {measured.max_error:.1e}")
    if ratio.verdict == "no win":
        parts.append("no win: the interval contains 1")
    if measured.noisy:
        parts.append("noisy: the rounds vary by more than 20 %")
    return "; ".join(parts)


def ratio_text(measured: Measurement) -> str:
    """Format the speedup of the advised form with its confidence interval, or how much less memory it needs."""
    ratio = measured.ratio
    if measured.quantity == "memory":
        return f"{ratio.value:.2f}x less memory"
    if ratio.verdict == "unknown":
        return f"{ratio.value:.2f}x as fast (one round only)"
    return f"{ratio.value:.2f}x speedup, {ratio.low:.2f} to {ratio.high:.2f} at {ratio.confidence:.0%}"


def proof_line(proof: Proof) -> str:
    """List the rules that fire on the traces before and after the fix, and the gains as shares of the step."""
    parts = []
    if proof.fired_before or proof.fired_after:
        after = ", ".join(proof.fired_after) or "nothing"
        parts.append(f"{', '.join(proof.fired_before) or 'nothing'} fires before, {after} after")
    else:
        parts.append("none of its rules fires")
    if proof.newly_fired:
        parts.append(f"newly fires: {', '.join(proof.newly_fired)}")
    gains = (
        ("estimated gain up to", proof.gain_estimated),
        ("predicted", proof.gain_predicted),
        ("simulated" if proof.simulated else "measured", proof.gain),
    )
    shares = [f"{word} {format_ratio(gain)}" for word, gain in gains if gain is not None]
    if shares:
        parts.append(f"{', '.join(shares)} of the step")
    return ("simulated traces: " if proof.simulated else "") + "; ".join(parts)


def print_results(results: Sequence[BenchmarkResult], console: Console) -> None:
    """Print all ``results``."""
    for result in results:
        print_result(result, console)


def print_validation(results: Sequence[BenchmarkResult], console: Console) -> None:
    """Print the validation table of all ``results``."""
    table = ValidationTable(console, [(result.name, result.rules) for result in results])
    for result in results:
        table.add(result)
    table.end(results)
