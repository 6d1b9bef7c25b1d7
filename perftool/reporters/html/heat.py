"""Lays out heat maps: each shade is one path, in which adjacent cells are joined."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby

from perftool.model.pictures import HeatMap
from perftool.reporters.html.charts import Chart, Layer, Tick

# Lower bounds of the shades, as shares of a step.
_SHADES = (0.02, 0.05, 0.1, 0.2, 0.4)
_LABELS = tuple(f"at least {shade:.0%} of a step" for shade in _SHADES)
_MOST_COLUMNS = 1024
_TICKS = 8


def heat_chart(heat: HeatMap) -> Chart:
    """Build the chart of ``heat``: the darker a cell, the larger its share of a step."""
    width = -(-len(heat.columns) // _MOST_COLUMNS)
    columns = -(-len(heat.columns) // width)
    height = 100 / len(heat.rows)
    paths = [""] * len(_SHADES)
    for number, row in enumerate(heat.shares):
        shades = [bisect_right(_SHADES, max(row[at : at + width])) for at in range(0, len(row), width)]
        for shade, begin, end in _stretches(shades):
            if shade:
                paths[shade - 1] += f"M{begin} {number * height:.4g}H{end}v{height:.4g}H{begin}z"
    layers = (Layer(f"heat-{at}", _LABELS[at], path) for at, path in enumerate(paths) if path)
    x, y = _ticks(heat.columns[::width]), _ticks(heat.rows)
    return Chart(f"heat-{heat.name}", heat.title, heat.note, columns, tuple(layers), y, x)


def _ticks(labels: Sequence[str]) -> tuple[Tick, ...]:
    """Place each label in the middle of its cell; if there are many, only every n-th."""
    every = -(-len(labels) // _TICKS)
    return tuple(Tick(100 * (at + 0.5) / len(labels), labels[at]) for at in range(0, len(labels), every))


def _stretches(shades: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the runs of equal cells as (shade, begin, end)."""
    found, at = [], 0
    for shade, group in groupby(shades):
        length = len(list(group))
        found.append((shade, at, at + length))
        at += length
    return found
