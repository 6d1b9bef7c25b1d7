"""Lays out the small timeline next to a finding. Positions are in percent of the width, to fit any screen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perftool.model.cut_text import cut_text
from perftool.model.pictures import Bar, Lane, Timeline
from perftool.model.words import kind_label
from perftool.reporters.html.charts import Tick, nice_ticks, round_label
from perftool.units import format_count, format_ns

_ROW = 16
_LEAST_WIDTH = 0.15
# In percent; narrower bars have no room for a label.
_LABELLED_WIDTH = 3.0
# Kernels from C++ templates can have names of thousands of characters.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Box:
    """A drawn bar: horizontal position and width in percent, vertical offset in pixels, tooltip, and label. A
    ``dense`` bar combines several stretches of work."""

    kind: str
    x: float
    width: float
    y: int
    tip: str
    label: str | None
    dense: bool


@dataclass(frozen=True)
class DrawnLane:
    """A drawn lane: ``height`` is in pixels, ``lit`` are positions and widths on the critical path, in percent."""

    name: str
    side: str
    height: int
    boxes: tuple[Box, ...]
    lit: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class DrawnTimeline:
    """A drawn timeline. The mark highlights an interval, in percent of the width; tick labels count from its start."""

    mark_x: float
    mark_width: float
    lanes: tuple[DrawnLane, ...]
    ticks: tuple[Tick, ...]
    caption: str


def draw(timeline: Timeline) -> DrawnTimeline:
    """Place the bars of ``timeline``."""
    lanes = tuple(_lane(lane, timeline) for lane in timeline.lanes)
    mark_x = _percent(timeline.mark_ts_ns - timeline.ts_ns, timeline)
    mark_width = max(_percent(timeline.mark_dur_ns, timeline), _LEAST_WIDTH)
    return DrawnTimeline(mark_x, mark_width, lanes, _ticks(timeline), _caption(timeline))


def draw_path(timeline: Timeline) -> DrawnTimeline:
    """Place the bars of ``timeline``, which shows a step and its critical path."""
    drawn = draw(timeline)
    left_out = f"; {format_count(timeline.left_out)} of the shortest bars left out" if timeline.left_out else ""
    caption = f"{timeline.step or 'The recording'}, {format_ns(timeline.dur_ns)}, rank {timeline.rank}{left_out}."
    return replace(drawn, caption=f"Underlined: what bounds {caption}", mark_width=0.0)


def _lane(lane: Lane, timeline: Timeline) -> DrawnLane:
    boxes = tuple(_box(bar, lane, timeline) for bar in lane.bars)
    lit = tuple(
        (_percent(ts - timeline.ts_ns, timeline), max(_percent(dur, timeline), _LEAST_WIDTH))
        for ts, dur in timeline.lit.get(lane.key, ())
    )
    return DrawnLane(lane.name, lane.side, lane.rows * _ROW, boxes, lit)


def _box(bar: Bar, lane: Lane, timeline: Timeline) -> Box:
    label = kind_label(bar.kind) if lane.side == "idle" else bar.name and cut_text(bar.name, _LONGEST_NAME)
    width = max(_percent(bar.dur_ns, timeline), _LEAST_WIDTH)
    what = label if label and bar.count == 1 else f"{format_count(bar.count)} × {kind_label(bar.kind)}"
    several = bar.count > 1
    shown = label if width >= _LABELLED_WIDTH and not several else None
    x, tip = _percent(bar.ts_ns - timeline.ts_ns, timeline), f"{what}, {format_ns(bar.dur_ns)}"
    return Box(bar.kind, x, width, bar.row * _ROW, tip, shown, several)


def _ticks(timeline: Timeline) -> tuple[Tick, ...]:
    """Place ticks at round times relative to the start of the mark."""
    before = timeline.mark_ts_ns - timeline.ts_ns
    _, values = nice_ticks(timeline.dur_ns, 9)
    step = int(values[1]) or 1
    times = range(-(before // step) * step, timeline.dur_ns - before + 1, step)
    ticks = [(_percent(time + before, timeline), time) for time in times]
    return tuple(Tick(at, "0" if time == 0 else f"{'+' if time > 0 else '−'}{round_label(format_ns(abs(time)))}")
                 for at, time in ticks if 2 <= at <= 98)  # fmt: skip


def _caption(timeline: Timeline) -> str:
    name = f"{timeline.mark_name}, " if timeline.mark_name else ""
    step = f" in {timeline.step}" if timeline.step else ""
    left_out = f"; {format_count(timeline.left_out)} of the shortest bars left out" if timeline.left_out else ""
    return f"Marked: {name}{format_ns(timeline.mark_dur_ns)}{step}, rank {timeline.rank}{left_out}."


def _percent(ns: int, timeline: Timeline) -> float:
    return round(100 * ns / timeline.dur_ns, 2)
