"""Benchmark results as Markdown: the validation table, then every measurement."""

from __future__ import annotations

from collections.abc import Sequence

from perftool.model.benchmark import BenchmarkResult
from perftool.reporters.benchmark.text import COLUMNS, measurement_line, validation_cells


def render_benchmarks_markdown(results: Sequence[BenchmarkResult]) -> bytes:
    """Two sections; the first is a table with one row for each benchmark."""
    lines = [_row(COLUMNS), _row(["---"] * len(COLUMNS)), *(_row(validation_cells(result)) for result in results)]
    for result in results:
        if result.measurements:
            first = result.measurements[0]
            lines += ["", f"### {result.name}", "", f"{result.summary}. Naive: `{first.naive.title}`; "]
            lines[-1] += f"advised: `{first.advised.title}`."
            lines += ["", *(f"* {measurement_line(measured)}" for measured in result.measurements)]
    return ("\n".join(lines) + "\n").encode()


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
