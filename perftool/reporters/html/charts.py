"""Lays out the charts: stacked columns and lines as SVG paths, with the same data for the interactive charts.

The view box of the paths stretches with the page. Labels are positioned in percent, so that text keeps its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log10
from typing import Any

from perftool.model.pictures import MemoryCurve, MemorySteps, RankTimes, Strip
from perftool.model.report import BREAKDOWN, Step
from perftool.model.words import kind_label
from perftool.units import format_bytes, format_ns

_MOST_COLUMNS = 120
# With more columns, there is no room for gaps.
_MOST_GAPS = 60
_DWARFED = 4
# The kinds of work in the chart of a device's activity, from bottom to top.
BUSY_KINDS = ("kernel", "communication", "memcpy", "memset")
_BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True)
class Series:
    """One kind of time or memory in a stacked chart, with its value in each column."""

    kind: str
    label: str
    values: Sequence[float]
    idle: bool = False


@dataclass(frozen=True)
class Layer:
    """One kind in a chart: its path, its kind (a colour) and its label. ``idle`` layers are hatched."""

    kind: str
    label: str
    path: str
    idle: bool = False


@dataclass(frozen=True)
class Tick:
    """A label at ``at`` percent of an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart as SVG paths, which need no script. The page's script draws an interactive chart of ``live`` instead."""

    id: str
    title: str
    note: str = ""
    columns: int = 100
    layers: tuple[Layer, ...] = ()
    y: tuple[Tick, ...] = ()
    x: tuple[Tick, ...] = ()
    live: Mapping[str, Any] = field(default_factory=dict)
    line: bool = False


def step_charts(steps: Sequence[Step], ranks: int) -> list[Chart]:
    """Chart the breakdown of the steps over time, for each of the first ``ranks`` ranks."""
    shown = sorted({step.rank for step in steps})
    several = len(shown) > 1
    return [_step_chart([step for step in steps if step.rank == rank], rank, several) for rank in shown[:ranks]]


def _step_chart(steps: Sequence[Step], rank: int, several: bool) -> Chart:
    per_column = -(-len(steps) // _MOST_COLUMNS)
    groups = [steps[at : at + per_column] for at in range(0, len(steps), per_column)]
    names = [_group_name(group) for group in groups]
    parts = {part: [sum(s.parts_ns[part] for s in group) / len(group) for group in groups] for part in BREAKDOWN}
    parts = {part: values for part, values in parts.items() if any(values)}
    note = f"each column is the mean of {per_column} steps" if per_column > 1 else ""
    title = f"Rank {rank}" if several else "Parts of each step"
    series = [Series(part, kind_label(part), values) for part, values in parts.items()]
    return _stacked(Chart(f"steps-{rank}", title, note), names, series, _MS)


def _group_name(group: Sequence[Step]) -> str:
    names = [step.name.removeprefix("ProfilerStep#") + ("*" if step.partial else "") for step in group]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def rank_chart(ranks: Sequence[RankTimes]) -> Chart:
    """Chart the mean step of each rank. If there are many ranks, a column stands for several neighbouring ranks, and
    shows the rank that spends the most time outside collectives."""
    per_column = -(-len(ranks) // _MOST_COLUMNS)
    shown = [max(ranks[at : at + per_column], key=_own_ns) for at in range(0, len(ranks), per_column)]
    parts = [Series(part, kind_label(part), [float(rank.breakdown_ns[part]) for rank in shown]) for part in BREAKDOWN]
    series = [one for one in parts if any(one.values)]
    note = (
        f"each column shows one of {per_column} neighbouring ranks: the one with the most time outside collectives"
        if per_column > 1
        else ""
    )
    return _stacked(Chart("ranks", "Mean step of each rank", note), [str(rank.rank) for rank in shown], series, _MS)


def _own_ns(rank: RankTimes) -> float:
    return sum(ns for part, ns in rank.breakdown_ns.items() if part != "communication")


def strip_chart(strip: Strip, several: bool, device: str) -> Chart:
    """Chart the activity of a rank's device over the window: work at the bottom, idle time by cause above.

    ``device`` is the word for the device in the title.
    """
    idle = sorted((kind for kind in strip.shares if kind.startswith("idle:")), key=lambda k: -sum(strip.shares[k]))
    series = [Series(kind, kind_label(kind), strip.shares[kind]) for kind in BUSY_KINDS if kind in strip.shares]
    for kind in idle:
        cause = kind.removeprefix("idle:")
        series.append(Series(cause, kind_label(cause), strip.shares[kind], idle=True))
    count = len(next(iter(strip.shares.values()), ()))
    title = f"Rank {strip.rank}" if several else f"{device[:1].upper()}{device[1:]} over the window"
    middles = [float(f"{(at + 0.5) * strip.bin_ns / 1e6:.9g}") for at in range(count)]
    chart = _stacked(Chart(f"strip-{strip.rank}", title), [""] * count, series, _SHARE)
    return replace(chart, x=_time_ticks(count * strip.bin_ns), live={**chart.live, "x": middles, "x_unit": "ms"})


@dataclass(frozen=True)
class _Scale:
    """The scale of an axis: one ``unit`` corresponds to ``size`` in the values of the series. ``top`` is a fixed upper
    end."""

    unit: str
    size: float
    show: Callable[[float], str]
    top: float | None = None
    # Ticks are at round multiples of this value.
    grid: float = 1.0


_MS = _Scale("ms", 1e6, format_ns)
_SHARE = _Scale("%", 0.01, lambda value: f"{value:.0%}", 1.0)


def _stacked(chart: Chart, names: Sequence[str], series: Sequence[Series], scale: _Scale) -> Chart:
    """Fill ``chart`` with the columns ``names``, each stacked from the values of ``series``."""
    highest = scale.top or max((sum(one.values[at] for one in series) for at in range(len(names))), default=0) or 1.0
    ceiling, ticks = (scale.top, (0.0, 0.5, 1.0)) if scale.top else nice_ticks(highest / scale.grid)
    ceiling, ticks = ceiling * scale.grid, tuple(tick * scale.grid for tick in ticks)
    base = [0.0] * len(names)
    gap = 0.0 if len(names) > _MOST_GAPS else 0.14
    layers = []
    for one in series:
        layers.append(Layer(one.kind, one.label, _columns(base, one.values, ceiling, gap), one.idle))
        base = [low + value for low, value in zip(base, one.values, strict=True)]
    drawn = [
        {"kind": s.kind, "label": s.label, "idle": s.idle, "y": [_rounded(value / scale.size) for value in s.values]}
        for s in series
    ]
    live = {"type": "stacked", "x": list(names), "unit": scale.unit, "series": drawn, "gap": gap}
    y = tuple(Tick(round(100 - 100 * tick / ceiling, 2), round_label(scale.show(tick))) for tick in ticks)
    return replace(chart, columns=max(len(names), 1), layers=tuple(layers), y=y, x=_x_ticks(names), live=live)


def _columns(base: Sequence[float], values: Sequence[float], ceiling: float, gap: float) -> str:
    """Build a path of rectangles, one per column, in a box that is 100 high and one unit wide per column."""
    path = []
    for at, (low, value) in enumerate(zip(base, values, strict=True)):
        height = 100 * value / ceiling
        if height >= 0.05:
            top = 100 - 100 * low / ceiling - height
            path.append(f"M{_short(at + gap / 2)} {_short(top)}h{_short(1 - gap)}v{_short(height)}h{_short(gap - 1)}z")
    return "".join(path)


def memory_chart(curve: MemoryCurve, several: bool) -> Chart:
    """Chart allocated and reserved memory over time as lines."""
    begin = curve.ts_ns[0]
    span = max(curve.ts_ns[-1] - begin, 1)
    xs = [(at - begin) / span * 100 for at in curve.ts_ns]
    lines, note = _memory_lines(curve)
    highest = max(max(values) for *_, values in lines) or 1
    unit, unit_name = _byte_unit(highest)
    ceiling, ticks = nice_ticks(highest / unit)
    layers = [Layer(kind, label, _line(xs, values, ceiling * unit)) for kind, label, values in lines]
    series = [{"kind": k, "label": label, "y": [_rounded(v / unit) for v in values]} for k, label, values in lines]
    times = [_rounded((at - begin) / 1e6) for at in curve.ts_ns]
    live = {"type": "lines", "x": times, "x_unit": "ms", "unit": unit_name, "series": series}
    title = f"{f'Rank {curve.rank}, ' if several else ''}{curve.device}"
    y = tuple(Tick(round(100 - 100 * t / ceiling, 2), round_label(format_bytes(t * unit))) for t in ticks)
    chart_id = f"memory-{curve.rank}-{''.join(c if c.isalnum() else '-' for c in curve.device)}"
    title = title[:1].upper() + title[1:]
    return Chart(
        chart_id, title, note, layers=tuple(layers), y=y, x=_time_ticks(span), live=live, line=True,
    )  # fmt: skip


def memory_steps_chart(drawn: MemorySteps, several: bool) -> Chart:
    """Chart the memory in use at the peak of each step, by kind."""
    highest = max(map(sum, zip(*drawn.kinds.values(), strict=True)))
    size, unit = _byte_unit(highest)
    series = [Series(kind, kind_label(kind), values) for kind, values in drawn.kinds.items()]
    several_steps = (
        f"each column shows one of {drawn.per_column} steps: the one with the highest peak"
        if drawn.per_column > 1
        else ""
    )
    title = f"{f'Rank {drawn.rank}, ' if several else ''}{drawn.device}: memory in use at the peak of each step"
    chart = Chart(f"memory-steps-{drawn.rank}", title[:1].upper() + title[1:], several_steps)
    return _stacked(chart, [str(step) for step in drawn.steps], series, _Scale(unit, size, format_bytes, grid=size))


def _byte_unit(highest: float) -> tuple[int, str]:
    """Return the largest unit up to ``highest``, in bytes, and its name."""
    return next((size, name) for size, name in _BYTE_UNITS if highest >= size or size == 1)


def _memory_lines(curve: MemoryCurve) -> tuple[list[tuple[str, str, list[int]]], str]:
    """Return the lines to draw, and a note. A very large reserve is not drawn, because it would flatten the other
    line."""
    thinned = "; thinned, peaks kept" if len(curve.ts_ns) < curve.samples else ""
    note = f"{curve.samples:,} readings{thinned}"
    lines = [("kernel", "allocated", list(curve.allocated))]
    reserved = [value for value in curve.reserved if value is not None]
    if len(reserved) == len(curve.reserved) and reserved:
        if max(reserved) <= _DWARFED * max(curve.allocated):
            lines.append(("memcpy", "reserved", reserved))
        else:
            note += f"; reserved up to {format_bytes(max(reserved))}, not drawn"
    return lines, note


def _line(xs: Sequence[float], values: Sequence[int], ceiling: float) -> str:
    """Build an SVG path of horizontal and vertical lines, because memory keeps its value until the next reading."""
    path: list[str] = []
    for x, value in zip(xs, values, strict=True):
        y = _short(100 - 100 * value / ceiling)
        path.append(f"H{_short(x)}V{y}" if path else f"M{_short(x)} {y}")
    return "".join(path)


def nice_ticks(highest: float, parts: int = 4) -> tuple[float, tuple[float, ...]]:
    """Return a round ceiling at or above ``highest``, and ticks that divide it into about ``parts`` parts."""
    rough = highest / parts
    power = 10.0 ** floor(log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    count = max(-int(-(highest * 0.999) // step), 1)
    return step * count, tuple(step * at for at in range(count + 1))


def round_label(text: str) -> str:
    """Remove the trailing zeros of a round value: ``50.0 ms`` becomes ``50 ms``, and zero becomes ``0``."""
    short = re.sub(r"\.(\d*?)0+ ", lambda found: f".{found[1]} " if found[1] else " ", text)
    return "0" if re.fullmatch(r"0 ?\D*", short) else short


def _time_ticks(span_ns: float) -> tuple[Tick, ...]:
    """Place ticks at round times since the start of a chart that spans ``span_ns``."""
    _, times = nice_ticks(span_ns, 6)
    return tuple(Tick(round(100 * at / span_ns, 2), round_label(format_ns(at))) for at in times if at <= span_ns)


def _x_ticks(names: Sequence[str]) -> tuple[Tick, ...]:
    if not names:
        return ()
    count = len(names)
    every = [round(at * (count - 1) / 5) for at in range(6)] if count > 12 else range(count)
    return tuple(Tick(round((at + 0.5) / count * 100, 2), names[at]) for at in sorted(set(every)))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _short(value: float) -> str:
    """Format ``value`` with at most two decimals, which is enough for a screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
