"""The tables of the text report: steps, rankings, and what Gaudi adds."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from perftool.engine.report.across_ranks import telling_ranks
from perftool.model.efficiency import Efficiency
from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.report import BREAKDOWN, Finding, RankSummary, Share, Step
from perftool.reporters.efficiency import best_text, rate_text, shapes_text
from perftool.reporters.escape import one_line
from perftool.units import format_count, format_ns, format_ratio

_MOST_STEPS = 8
_MOST_ROWS = 10
_MOST_RANKS = 16
_MOST_OPS = 5
_LONGEST_NAME = 72
_SHORTEST_NAME = 32
_UNLIMITED = 10_000
# So that the table fits 100 columns.
_SHORT = {"communication": "comm", "dataloader": "loader"}


def steps_table(steps: Sequence[Step]) -> Table:
    """The breakdown of each step in ms, without parts that no step has; long recordings are cut in the middle."""
    used = [part for part in BREAKDOWN if any(step.parts_ns[part] for step in steps)]
    table = table_of("step", "total", *(_SHORT.get(part, part) for part in used))
    shown = steps if len(steps) <= _MOST_STEPS else [*steps[: _MOST_STEPS - 2], *steps[-2:]]
    ranks = len({step.rank for step in steps}) > 1
    for at, step in enumerate(shown):
        if len(shown) < len(steps) and at == _MOST_STEPS - 2:
            table.add_row(f"… {len(steps) - len(shown)} more", *[""] * (len(used) + 1))
        why = f" ({step.left_out or 'partial'})" if step.partial else ""
        name = f"{f'rank {step.rank} ' if ranks else ''}{step.name}{why}"
        parts = [_ms(step.parts_ns[part]) for part in used]
        table.add_row(Text(one_line(name)), _ms(step.dur_ns), *parts, style="dim" if step.partial else None)
    return table


def efficiency_table(told: Efficiency) -> Table:
    """The ops that take most time: what they reached, and of what."""
    table = table_of("op", "shapes", "calls", "time", "reached", "of the best")
    for op in told.ops[:_MOST_OPS]:
        shapes = Text(one_line(shapes_text(op))[:_SHORTEST_NAME])
        table.add_row(
            _name(op.name.removeprefix("aten::")),
            shapes,
            format_count(op.calls),
            format_ns(op.kernel_ns),
            rate_text(op),
            best_text(op),
        )
    return table


def ranks_table(ranks: Sequence[RankSummary], findings: Sequence[Finding] = ()) -> Table:
    """One line per rank; times are shares of its window. Long runs show those of ``findings`` and that differ most."""
    table = table_of("rank", "steps", "median step", "busy", "compute", "exposed", "waiting", "clock")
    for row in telling_ranks(ranks, findings, _MOST_RANKS):
        step = "" if row.step_ns is None else format_ns(row.step_ns)
        clock = "" if row.offset_ns is None else f"{row.offset_ns / 1e6:+,.3f} ms"
        parts = (_share(ns, row.window_ns) for ns in (row.busy_ns, row.compute_ns, row.exposed_ns, row.waited_ns))
        state = "" if row.status == "ok" else f" ({row.status})"
        host = "" if row.host is None else f" {one_line(row.host)}"
        table.add_row(f"{row.rank}{host}{state}", str(row.steps) if row.steps else "", step, *parts, clock)
    return table


def _share(ns: int | None, whole: int | None) -> str:
    return "" if ns is None or not whole else format_ratio(ns / whole)


def shares_table(rows: Sequence[Share]) -> Table:
    """A ranking: name, time, share of the window, how often."""
    table = table_of("", "time", "of window", "times")
    for row in rows[:_MOST_ROWS]:
        table.add_row(_name(row.name), format_ns(row.total_ns), format_ratio(row.share), format_count(row.count))
    return table


def engines_table(engines: Sequence[Engine]) -> Table:
    """Engine groups: the union over their lanes, and how much of it their lanes fill on average."""
    table = table_of("engine", "busy (union)", "of window", "lanes", "mean lane use", "events")
    ranks = len({engine.rank for engine in engines}) > 1
    for row in engines:
        name = f"rank {row.rank} {row.engine}" if ranks else row.engine
        fill = row.lane_ns / (row.lanes * row.busy_ns) if row.busy_ns else 0.0
        share = format_ratio(row.busy_ratio)
        cells = (format_ns(row.busy_ns), share, str(row.lanes), format_ratio(fill), format_count(row.ops))
        table.add_row(name, *cells)
    return table


def recipes_table(recipes: Sequence[Recipe]) -> Table:
    """Recipes by device time: unions over all lanes, and per engine."""
    table = table_of("recipe", "device time", "MME", "TPC", "DMA", "launches", "first step")
    for row in recipes[:_MOST_ROWS]:
        name = (row.name or f"recipe {row.recipe}").rsplit("/", 1)[-1]
        times = (format_ns(row.busy_ns), format_ns(row.mme_ns), format_ns(row.tpc_ns), format_ns(row.dma_ns))
        first = "" if row.first_step is None else str(row.first_step)
        table.add_row(_name(name), *times, format_count(row.launches), first)
    return table


def fallbacks_table(fallbacks: Sequence[Fallback]) -> Table:
    """Operators that ran on the CPU: executions in the run, and time in the trace."""
    table = table_of("operator", "runs", "traced", "time", "types", "seen in")
    table.columns[-1].no_wrap = False
    for row in fallbacks[:_MOST_ROWS]:
        traced = "" if row.traced is None else format_count(row.traced)
        time = "unknown" if row.time_ns is None else format_ns(row.time_ns)
        seen = row.source.replace("+", ", ").replace("_", " ")
        table.add_row(_name(row.op), format_count(row.count), traced, time, row.dtypes or "", seen)
    return table


def print_table(table: Table, console: Console) -> None:
    """Print ``table`` with its numbers whole: half a number is a wrong number.

    Where it is too wide its columns move together, cells of several words wrap, and long names are cut. What is wider
    even then runs over the edge, and the terminal breaks the line.
    """
    for column in table.columns:
        if column.no_wrap:
            column.min_width = max(console.measure(cell).maximum for cell in (column.header, *column.cells))
    for padding in (table.padding, (0, 0, 0, 2), (0, 0, 0, 1)):
        table.padding = padding
        if _measure(table, console).maximum <= console.width:
            break
    name = table.columns[0]
    over = _measure(table, console).minimum - console.width
    if over > 0 and name.min_width:
        name.min_width = name.max_width = max(min(_SHORTEST_NAME, name.min_width), name.min_width - over)
        table.width = max(console.width, _measure(table, console).minimum)
    console.print(table, crop=False)


def _measure(table: Table, console: Console) -> Measurement:
    return Measurement.get(console, console.options.update(max_width=_UNLIMITED), table)


def table_of(first: str, *others: str) -> Table:
    """An empty table: names in the first column, numbers in the others."""
    table = Table(box=None, pad_edge=True, padding=(0, 1, 0, 2), header_style="dim")
    table.add_column(first, no_wrap=True)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _name(name: str) -> Text:
    # Before the table measures it: an escape is longer than what it stands for.
    shown = one_line(name)
    return Text(shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 1] + "…")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"
