"""Draws a metric over many runs as a page without scripts: a chart, the levels, and the runs."""

from __future__ import annotations

from dataclasses import dataclass

from perftool import __version__
from perftool.model.trend import Trend
from perftool.reporters.colours import style_sheet
from perftool.reporters.html.environment import asset, environment
from perftool.reporters.html.scripts import policy
from perftool.reporters.labels import format_value
from perftool.reporters.trend import level_rows, trend_headline, trend_notes

_WIDTH, _HEIGHT = 960, 260
# Margins in pixels: room for dots and half a line of text, for the axis labels on the left, and for the dates below.
_EDGE, _LEFT, _BELOW = 12, 76, 28
_MINUTE = len("2026-01-01T00:00")


@dataclass(frozen=True)
class Dot:
    """The position of a run in the chart."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Tick:
    """A label of the left axis, with its position."""

    y: float
    text: str


@dataclass(frozen=True)
class Bar:
    """A horizontal line for a level: consecutive runs with similar values."""

    x: float
    end: float
    y: float


def render_trend_html(trend: Trend, source: str) -> bytes:
    """Render the trend as a self-contained page."""
    values = [point.value for point in trend.points]
    # The axis starts at 0, so that noise does not look large.
    top = max([*values, 0.0]) or 1.0
    wide = (_WIDTH - _LEFT - _EDGE) / max(len(values) - 1, 1)

    def height(value: float) -> float:
        return round(_HEIGHT - _BELOW - max(value, 0.0) / top * (_HEIGHT - _EDGE - _BELOW), 1)

    unit = trend.kind.unit
    shown = [(point.time, point.name, format_value(point.value, unit)) for point in trend.points]
    dots = [Dot(round(_LEFT + at * wide, 1), height(point.value), f"{shown[at][0]}: {shown[at][2]}")
            for at, point in enumerate(trend.points)]  # fmt: skip
    bars, start = [], 0
    for level in trend.levels:
        end = start + level.runs
        bars.append(Bar(dots[start].x, dots[end - 1].x, height(level.median)))
        start = end
    ticks = [Tick(height(top * part / 4), format_value(top * part / 4, unit)) for part in range(5)]
    dates = [date[:_MINUTE].replace("T", " ") for date, _, _ in (shown[:1] + shown[-1:] if len(shown) > 1 else shown)]
    page = environment().get_template("trend.html.j2").render(
        title=f"{trend.kind.name} over {len(values)} runs", version=__version__, policy=policy(None), source=source,
        style=style_sheet() + asset("report.css"), headline=trend_headline(trend), notes=trend_notes(trend),
        meaning=trend.kind.meaning, width=_WIDTH, height=_HEIGHT, dots=dots, bars=bars, levels=level_rows(trend),
        runs=shown[::-1], top=format_value(top, unit), ticks=ticks, dates=dates, left=_LEFT - _EDGE,
    )  # fmt: skip
    return page.encode("utf-8", "replace")
