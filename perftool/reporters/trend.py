"""Renders the trend of a metric: on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isinf
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from perftool.model.trend import FEWEST_RUNS, Level, Trend
from perftool.reporters.escape import one_line
from perftool.reporters.json import TOOL, dump
from perftool.reporters.labels import format_value
from perftool.units import format_ratio

VERSION = 1
METHOD = f"PELT with the L1 cost (ruptures): levels of at least {FEWEST_RUNS} runs"
_MARKS = "▁▂▃▄▅▆▇█"
# From low to high, for encodings without block characters.
_PLAIN_MARKS = "_.-=+*%#"
_WIDEST = 72
_MOST_LEVELS = 8
# Times are shown to the minute; the JSON contains them in full.
_MINUTE = len("2026-01-01T00:00")


def print_trend(trend: Trend, source: str, console: Console) -> None:
    """Print the verdict, a sparkline of the runs, and their levels, in 80 columns."""
    console.print(one_line(trend_headline(trend)), soft_wrap=True)
    console.print(one_line(f"{_runs(len(trend.points))} of {source}{_like(trend)}"), style="dim", soft_wrap=True)
    if trend.points:
        plain = not console.encoding.lower().startswith("utf")
        values = [point.value for point in trend.points]
        console.print(f"\n{sparkline(values, _PLAIN_MARKS if plain else _MARKS)}  {_span(trend)}\n", soft_wrap=True)
        console.print(_level_table(trend))
    for note in trend_notes(trend):
        console.print(one_line(note), style="dim", soft_wrap=True)


def trend_headline(trend: Trend) -> str:
    """State the verdict on the runs in one sentence."""
    name, levels = trend.kind.name, trend.levels
    if trend.verdict == "cannot be judged":
        return f"{name}: too few runs to judge (fewer than {2 * FEWEST_RUNS})."
    now = f"{_value(trend, levels[-1].median)} since {levels[-1].first[:_MINUTE]}"
    if trend.best is None or trend.worse is None:
        return f"{name}: {now}{', which is neither better nor worse by itself' if len(levels) > 1 else ', steady'}."
    size = _size(trend, abs(trend.worse))
    best = f"the best earlier level, {_value(trend, trend.best.median)}"
    if trend.verdict == "steady":
        return f"{name}: {now}; within {_size(trend, trend.threshold)} of {best}."
    change = trend.verdict if isinf(trend.worse) else f"{size} {trend.verdict}"
    return f"{name}: {now}, {change} than {best}."


def trend_notes(trend: Trend) -> list[str]:
    """Say which runs and lines were left out, if any."""
    other = f"{_runs(trend.left_out)} of another device, world size or origin"
    absent = f"{_runs(trend.absent)} whose inputs do not show {trend.kind.name}"
    incomplete = f"{_runs(trend.incomplete)} with inputs that could not be read in full"
    damaged = f"{trend.damaged} corrupt line{'' if trend.damaged == 1 else 's'}"
    counts = (
        (trend.left_out, other), (trend.absent, absent), (trend.incomplete, incomplete), (trend.damaged, damaged),
    )  # fmt: skip
    clauses = [text for count, text in counts if count]
    return [f"Left out: {'; '.join(clauses)}."] if clauses else []


def sparkline(values: Sequence[float], marks: str = _MARKS) -> str:
    """Draw one mark per value, the lowest for the smallest. In a long series, each mark is the median of a group."""
    count = min(len(values), _WIDEST)
    edges = [round(at * len(values) / count) for at in range(count + 1)]
    drawn = [median(values[edges[at] : edges[at + 1]]) for at in range(count)]
    low, high = min(drawn), max(drawn)
    return "".join(
        marks[int((value - low) / (high - low) * (len(marks) - 1) + 0.5) if high > low else 0] for value in drawn
    )


def render_trend_json(trend: Trend) -> bytes:
    """Render the whole trend as one JSON object, with values in the unit of the metric."""
    data: dict[str, Any] = asdict(trend)
    kind = data.pop("kind")
    data["runs"] = data.pop("points")
    return dump(
        {"version": VERSION, "tool": TOOL, "method": METHOD, "metric": kind["name"], "unit": kind["unit"],
         "better": kind["better"], "regression": trend.fails, **data},
        indent=True,
    )  # fmt: skip


def level_rows(trend: Trend) -> list[tuple[str, str, str, str, str, str]]:
    """Format each level: median, change from the previous level, number of runs, first, last, and new findings."""
    return [
        (_value(trend, level.median), _change(level), f"{level.runs}", level.first[:_MINUTE], level.last[:_MINUTE],
         ", ".join(level.new_codes))
        for level in trend.levels
    ]  # fmt: skip


def _level_table(trend: Trend) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in ("level", "change", "runs", "from", "to", "new findings"):
        table.add_column(name, justify="right" if name in ("level", "change", "runs") else "left", overflow="fold")
    rows = level_rows(trend)
    if len(rows) > _MOST_LEVELS:
        table.add_row(f"… {len(rows) - _MOST_LEVELS} more")
    for row in rows[-_MOST_LEVELS:]:
        table.add_row(*map(one_line, row))
    return table


def _span(trend: Trend) -> str:
    values = [point.value for point in trend.points]
    low, high = _value(trend, min(values)), _value(trend, max(values))
    return low if low == high else f"{low} to {high}"


def _like(trend: Trend) -> str:
    ranks = f"{trend.world_size} ranks" if trend.world_size and trend.world_size > 1 else ""
    known = ", ".join(filter(None, (trend.device, ranks, trend.origin)))
    return f" ({known})" if known else ""


def _change(level: Level) -> str:
    return "" if level.change is None else f"{'+' if level.change >= 0 else ''}{format_ratio(level.change)}"


def _size(trend: Trend, size: float) -> str:
    return f"{100 * size:.1f} points" if trend.kind.unit == "ratio" else format_ratio(size)


def _value(trend: Trend, value: float) -> str:
    return format_value(value, trend.kind.unit)


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
