"""Benchmark results as Markdown: the machine, the validation table, then every measurement."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.benchmark import BenchmarkResult, Machine
from perftool.reporters.benchmark.table import COLUMNS, counted, validation_cells
from perftool.reporters.benchmark.text import measurement_line


def render_benchmarks_markdown(results: Sequence[BenchmarkResult], machine: Machine, left_out: str = "") -> bytes:
    """Render ``machine`` and ``left_out`` as a paragraph, a table with a row per benchmark, and all measurements."""
    lines = [f"Measured on {machine}. {left_out}".rstrip(), "", _row(COLUMNS), _row(["---"] * len(COLUMNS))]
    lines += [*(_row(validation_cells(result)) for result in results), "", f"{counted(results)}."]
    for result in results:
        if result.measurements:
            first = result.measurements[0]
            lines += ["", f"### {result.name}", "", f"{result.summary}. Naive: `{first.naive.title}`; "]
            lines[-1] += f"advised: `{first.advised.title}`"
            lines[-1] += f"; torch's own best: `{first.torch.title}`." if first.torch else "."
            lines += ["", *(f"* {measurement_line(measured)}" for measured in result.measurements)]
    return ("\n".join(lines) + "\n").encode()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
