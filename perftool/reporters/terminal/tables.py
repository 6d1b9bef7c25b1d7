"""The tables of the text report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from perftool.engine.report.across_ranks import ranks_to_show
from perftool.model.chains import Chain
from perftool.model.cut_text import cut_text
from perftool.model.efficiency import Efficiency
from perftool.model.gaudi import Engine, Fallback, Recipe
from perftool.model.memory import MemoryUse
from perftool.model.modules import ModuleTime
from perftool.model.report import BREAKDOWN, Finding, RankSummary, Share, Step
from perftool.model.words import kind_label
from perftool.reporters.chains import kernel_text
from perftool.reporters.efficiency import best_text, rate_text, shapes_text, share_text
from perftool.reporters.escape import one_line
from perftool.reporters.modules import module_label
from perftool.units import format_bytes, format_count, format_ns, format_ratio

_MOST_STEPS = 8
_MOST_ROWS = 10
_MOST_RANKS = 16
_MOST_OPS = 5
_MOST_PLACES = 60
_MOST_MODULES, _LEAST_MODULE = 30, 0.01
_LONGEST_NAME = 72
_SHORTEST_NAME = 32
_UNLIMITED = 10_000
# Short names make the table fit into 100 columns.
_SHORT = {"communication": "comm", "dataloader": "loader"}


def steps_table(steps: Sequence[Step], word: str) -> Table:
    """Show the breakdown of each step in ms, without parts that no step has. If there are many steps, only the first
    ones and the last two are shown."""
    used = [part for part in BREAKDOWN if any(step.parts_ns[part] for step in steps)]
    table = table_of(word, "total", *(_SHORT.get(part, part) for part in used))
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


def efficiency_table(efficiency: Efficiency) -> Table:
    """Show the ops that take the most time, with their rates and their share of the peak."""
    table = table_of("op", "shapes", "calls", "time", "reached", "of peak")
    for op in efficiency.ops[:_MOST_OPS]:
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


def chain_table(chain: Chain) -> Table:
    """Show one repeat of a sequence of kernels: for each, the op that launched it, its time and its share."""
    table = table_of("op", "kernel", "time", "share", "of peak")
    for place in chain.places[:_MOST_PLACES]:
        best = "" if place.roofline_ratio is None else share_text(place.roofline_ratio)
        kernel = Text(one_line(kernel_text(place))[:_SHORTEST_NAME])
        op = _name((place.op or "").removeprefix("aten::"))
        table.add_row(op, kernel, format_ns(place.ns), format_ratio(place.share), best)
    if left := chain.places[_MOST_PLACES:]:
        rest = format_ns(sum(place.ns for place in left))
        table.add_row(f"… {len(left)} more", "", rest, format_ratio(sum(place.share for place in left)), "")
    return table


def modules_table(modules: Sequence[ModuleTime]) -> Table:
    """Show the modules that take the most time, indented below their parents."""
    trained = any(module.backward_ns for module in modules)
    table = table_of("module", "calls", *(("forward", "backward") if trained else ("time",)), "self", "share")
    for module in [module for module in modules if module.share >= _LEAST_MODULE][:_MOST_MODULES]:
        name = Text("  " * (module.depth - 1) + one_line(module_label(module)))
        times = (module.forward_ns, module.backward_ns) if trained else (module.forward_ns,)
        calls = format_count(module.calls) if module.depth else ""
        table.add_row(name, calls, *map(format_ns, (*times, module.own_ns)), format_ratio(module.share))
    return table


def memory_table(uses: Sequence[MemoryUse]) -> Table:
    """Show the kinds of memory blocks in use at the peak."""
    table = table_of("use", "bytes", "share", "blocks", "allocated by")
    table.columns[-1].justify = "left"
    for use in uses:
        count = "" if use.count is None else format_count(use.count)
        share = format_ratio(use.bytes / use.allocated)
        made_by = _name(use.makers.replace("aten::", ""))
        table.add_row(kind_label(use.kind), format_bytes(use.bytes), share, count, made_by)
    return table


def ranks_table(ranks: Sequence[RankSummary], findings: Sequence[Finding] = (), word: str = "step") -> Table:
    """Show one line per rank, with times as shares of its window. If there are many ranks, show only unusual ones and
    those in findings."""
    table = table_of("rank", f"{word}s", f"median {word}", "busy", "compute", "exposed", "waiting", "clock")
    for row in ranks_to_show(ranks, findings, _MOST_RANKS):
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
    """Show a ranking: name, time, share of the window, count."""
    table = table_of("", "time", "% of window", "count")
    for row in rows[:_MOST_ROWS]:
        table.add_row(_name(row.name), format_ns(row.total_ns), format_ratio(row.share), format_count(row.count))
    return table


def engines_table(engines: Sequence[Engine]) -> Table:
    """Show the engines: how long any lane is busy, and for what share of that time a lane is busy on average."""
    table = table_of("engine", "busy (union)", "% of window", "lanes", "mean lane use", "events")
    ranks = len({engine.rank for engine in engines}) > 1
    for row in engines:
        name = f"rank {row.rank} {row.engine}" if ranks else row.engine
        fill = row.lane_ns / (row.lanes * row.busy_ns) if row.busy_ns else 0.0
        share = format_ratio(row.busy_ratio)
        cells = (format_ns(row.busy_ns), share, str(row.lanes), format_ratio(fill), format_count(row.ops))
        table.add_row(one_line(name), *cells)
    return table


def recipes_table(recipes: Sequence[Recipe]) -> Table:
    """Show the recipes by device time: the union over all lanes, and per engine."""
    table = table_of("recipe", "device time", "MME", "TPC", "DMA", "launches", "first step")
    for row in recipes[:_MOST_ROWS]:
        name = (row.name or f"recipe {row.recipe}").rsplit("/", 1)[-1]
        times = (format_ns(row.busy_ns), format_ns(row.mme_ns), format_ns(row.tpc_ns), format_ns(row.dma_ns))
        first = "" if row.first_step is None else str(row.first_step)
        table.add_row(_name(name), *times, format_count(row.launches), first)
    return table


def fallbacks_table(fallbacks: Sequence[Fallback]) -> Table:
    """Show the ops that ran on the CPU: how often in the run, and their time in the trace."""
    table = table_of("operator", "runs", "traced", "time", "types", "recorded in")
    table.columns[-1].no_wrap = False
    for row in fallbacks[:_MOST_ROWS]:
        traced = "" if row.traced is None else format_count(row.traced)
        time = "unknown" if row.time_ns is None else format_ns(row.time_ns)
        table.add_row(_name(row.op), format_count(row.count), traced, time, one_line(row.dtypes or ""), row.recorded_in)
    return table


def print_table(table: Table, console: Console) -> None:
    """Print ``table`` without cutting numbers.

    A table that is too wide gets narrower padding, wraps cells of several words, and cuts long names. If it is still
    too wide, the terminal wraps its lines.
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
    """Create an empty table with names in the first column and numbers in the others."""
    table = Table(box=None, pad_edge=True, padding=(0, 1, 0, 2), header_style="dim")
    table.add_column(first, no_wrap=True)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _name(name: str) -> Text:
    # Escape before the table is measured, because an escape is longer than the character.
    return Text(cut_text(one_line(name), _LONGEST_NAME))


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"
