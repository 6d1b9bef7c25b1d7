"""Lays out the roofline chart: ops by arithmetic intensity and achieved rate, on logarithmic axes.

Williams, Waterman and Patterson, Roofline (2009): the rate of an op is at most the peak rate for its type, and at most
its operations per byte times the memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt

from perftool.model.efficiency import AssumedPeak, Efficiency, OpRate
from perftool.reporters.efficiency import best_text, rate_text, shapes_text
from perftool.units import format_ns, quantity

WIDTH, HEIGHT = 860.0, 360.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 150.0, 10.0, 36.0
_LEAST_RADIUS, _MOST_RADIUS = 3.0, 17.0
_MATRIX = ("product", "convolution", "attention")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Point:
    """An op in the chart: its position and size in the view box, its colour class, and its tooltip."""

    x: float
    y: float
    radius: float
    kind: str
    tip: str


@dataclass(frozen=True)
class Mark:
    """A label on an axis, at the coordinate ``at`` of the view box."""

    at: float
    label: str


@dataclass(frozen=True)
class Roof:
    """The roof of a peak: rises from (x1, y1) to (x2, y2), where memory is the limit, then runs flat to its label."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str


@dataclass(frozen=True)
class RooflineChart:
    """Everything that the template draws; ``left_out`` counts ops whose operations or bytes are 0 or unknown."""

    points: tuple[Point, ...]
    roofs: tuple[Roof, ...]
    x: tuple[Mark, ...]
    y: tuple[Mark, ...]
    left_out: int
    width: float = WIDTH
    height: float = HEIGHT
    left: float = _LEFT
    right: float = WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM


@dataclass(frozen=True)
class _Axis:
    """Powers of ten from ``low`` to ``high`` between two positions of the view box."""

    low: int
    high: int
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return round(self.begin + (self.end - self.begin) * share, 1)

    def marks(self) -> tuple[Mark, ...]:
        powers = range(self.low, self.high + 1)
        return tuple(Mark(self.at(10.0**power), _power(power)) for power in powers)


def roofline_chart(efficiency: Efficiency) -> RooflineChart | None:
    """Build the chart of ``efficiency``. Return None if no op has both operations and bytes."""
    shown = [op for op in efficiency.ops if op.tflops and op.tbytes]
    if not shown:
        return None
    peaks = _highest(efficiency.peaks)
    rates = [op.tflops for op in shown if op.tflops] + [peak.rate / 1e12 for peak in peaks]
    x = _axis([_intensity(op) for op in shown], _LEFT, WIDTH - _RIGHT)
    y = _axis(rates, HEIGHT - _BOTTOM, _TOP)
    longest = max(op.kernel_ns for op in shown)
    points = tuple(_point(op, x, y, longest) for op in shown)
    roofs = tuple(roof for peak in peaks if (roof := _roof(peak, x, y)))
    return RooflineChart(points, roofs, x.marks(), y.marks(), len(efficiency.ops) - len(shown))


def _intensity(op: OpRate) -> float:
    assert op.tflops
    assert op.tbytes
    return op.tflops / op.tbytes


def _axis(values: Sequence[float], begin: float, end: float) -> _Axis:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return _Axis(low, max(high, low + 1), begin, end)


def _highest(peaks: Sequence[AssumedPeak]) -> list[AssumedPeak]:
    """Keep one peak per rate, sorted from the highest rate to the lowest."""
    ordered = sorted(peaks, key=lambda peak: (-peak.rate, peak.dtype))
    return list({peak.rate: peak for peak in reversed(ordered)}.values())[::-1]


def _roof(peak: AssumedPeak, x: _Axis, y: _Axis) -> Roof | None:
    """Clip the roof of ``peak`` to the axes. Return None if it is outside."""
    ridge = peak.rate / peak.bandwidth
    low, high = 10.0**x.low, 10.0**x.high
    floor_rate = 10.0**y.low * 1e12
    begin = max(low, floor_rate / peak.bandwidth)
    if begin >= high:
        return None
    turn = min(max(ridge, begin), high)
    top = min(peak.rate, turn * peak.bandwidth) / 1e12
    start = min(peak.rate, begin * peak.bandwidth) / 1e12
    label = f"{peak.dtype} {peak.rate / 1e12:,.0f}{' (est.)' if peak.estimate else ''}"
    return Roof(x.at(begin), y.at(start), x.at(turn), y.at(top), label)


def _point(op: OpRate, x: _Axis, y: _Axis, longest: int) -> Point:
    assert op.tflops
    radius = _LEAST_RADIUS + (_MOST_RADIUS - _LEAST_RADIUS) * sqrt(op.kernel_ns / max(longest, 1))
    shown = (
        shapes_text(op),
        f"{quantity(op.calls, 'call', 'calls')}, {format_ns(op.kernel_ns)}",
        rate_text(op),
        best_text(op),
    )
    kind = "kernel" if op.kind in _MATRIX else "memcpy"
    return Point(
        x.at(_intensity(op)), y.at(op.tflops), round(radius, 1), kind, "\n".join(filter(None, (op.name, *shown)))
    )


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 4 else f"10{str(power).translate(_SUPERSCRIPTS)}" if power else "1"
