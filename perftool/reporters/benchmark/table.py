"""The validation table: for each benchmark, the rules that fire before and after the fix, and the gains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text

from perftool.model.benchmark import BenchmarkResult, Ratio
from perftool.units import format_ratio

STATUS_STYLE = {
    "validated": "bold green", "measured": "green", "simulated": "bold cyan", "skipped": "yellow", "failed": "bold red",
}  # fmt: skip


@dataclass(frozen=True)
class _Column:
    name: str
    width: int
    justify: Literal["left", "right"] = "right"


# Minimum widths; ``ValidationTable`` widens ``benchmark`` and ``before`` to fit the expected rows.
_COLUMNS = (
    _Column("status", 9, "left"),
    _Column("benchmark", 9, "left"),
    _Column("before", 7, "left"),
    _Column("after", 7, "left"),
    _Column("gain <=", 7),
    _Column("predicted", 9),
    _Column("measured", 8),
    _Column("simulated", 9),
    _Column("ratio", 6),
    _Column("interval", 14, "left"),
    _Column("torch", 6),
    _Column("difference", 10),
)
COLUMNS = (*(column.name for column in _COLUMNS), "newly fires", "reason")
_INDENT = "    "


class ValidationTable:
    """Prints a row to ``console`` for each finished benchmark. ``expected`` contains the names and rules of all
    benchmarks, which determine the widths of the columns.
    """

    def __init__(self, console: Console, expected: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._console = console
        grown = {
            "benchmark": max((len(name) for name, _ in expected), default=0),
            "before": max((len(", ".join(rules)) for _, rules in expected), default=0),
        }
        self._widths = [max(column.width, grown.get(column.name, 0)) for column in _COLUMNS]
        self._print([column.name for column in _COLUMNS], "bold", "bold")

    def add(self, result: BenchmarkResult) -> None:
        """Print a row, and below it the rules that newly fire and the reason for the status."""
        *cells, newly, reason = validation_cells(result)
        self._print(cells, STATUS_STYLE[result.status], "")
        for text in (f"newly fires: {newly}" if newly else "", reason):
            if text:
                self._console.print(Text(f"{_INDENT}{text}", style="dim"), soft_wrap=True)

    def end(self, results: Sequence[BenchmarkResult]) -> None:
        """Print how many rows have each status."""
        self._console.print()
        self._console.print(counted(results))

    def _print(self, cells: Sequence[str], first: str, others: str) -> None:
        padded = [
            cell.ljust(width) if column.justify == "left" else cell.rjust(width)
            for cell, width, column in zip(cells, self._widths, _COLUMNS, strict=True)
        ]
        line = Text.assemble((padded[0], first), "  ", ("  ".join(padded[1:]).rstrip(), others))
        self._console.print(line, soft_wrap=True)


def counted(results: Sequence[BenchmarkResult]) -> str:
    """Count the rows by status, as in ``3 validated, 1 failed``."""
    counts: Counter[str] = Counter(result.status for result in results)
    return ", ".join(f"{counts[status]} {status}" for status in STATUS_STYLE if counts[status])


def validation_cells(result: BenchmarkResult) -> tuple[str, ...]:
    """Return a row of the validation table, in the order of ``COLUMNS``."""
    proof = result.proof
    first = result.measurements[0] if result.measurements else None
    error = first.max_error if first else proof.max_error if proof else None
    gain = proof.gain if proof else None
    return (
        result.status,
        result.name,
        _codes(proof.fired_before) if proof else "-",
        _codes(proof.fired_after) if proof else "-",
        _share(proof.gain_estimated if proof else None),
        _share(proof.gain_predicted if proof else None),
        _share(gain if proof and not proof.simulated else None),
        _share(gain if proof and proof.simulated else None),
        f"{first.ratio.value:.2f}" if first else "-",
        _interval(first.ratio) if first else "-",
        f"{first.torch_ratio.value:.2f}" if first and first.torch_ratio else "-",
        "-" if error is None else f"{error:.1e}",
        ", ".join(proof.newly_fired) if proof else "",
        result.reason or "",
    )


def _codes(codes: Sequence[str]) -> str:
    return ", ".join(codes) or "nothing"


def _share(share: float | None) -> str:
    return "-" if share is None else format_ratio(share)


def _interval(ratio: Ratio) -> str:
    return "one round" if ratio.verdict == "unknown" else f"{ratio.low:.2f} to {ratio.high:.2f}"
