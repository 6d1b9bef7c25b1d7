"""Formats times, sizes, shares and ranks as text.

Internally, every time is an integer number of nanoseconds. Text uses the largest unit in which the number is at least
1; in JSON, the key contains the unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
# Times before this (2001) are relative to an origin other than 1970, such as the boot of the machine.
EARLIEST_DATE_NS = 10**18

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"))
# A value of at least this share of a unit is shown in that unit, because it would be rounded to a whole unit anyway.
_ROUNDS_UP = 0.9995
# PyTorch puts the time in ns since 1970 into the names of its traces: 19 digits cover the years 2001 to 2286.
_EPOCH_NS = re.compile(r"(?<!\d)[1-9]\d{18}(?!\d)")
_BYTE_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_ns(ns: float) -> str:
    """Format a duration in nanoseconds: ``1.23 ms``, ``450 ns``, ``-2.00 us``."""
    for size, unit in _TIME_STEPS:
        if abs(ns) >= _ROUNDS_UP * size:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def format_alike(*times_ns: float) -> list[str]:
    """Format durations for comparison, with the unit and digits of the longest: ``28.5 ms``, ``0.0 ms``.

    A positive value that would be rounded to zero becomes ``<0.1 ms``.
    """
    longest = max(map(abs, times_ns), default=0)
    size, unit = next(((size, unit) for size, unit in _TIME_STEPS if longest >= _ROUNDS_UP * size), (1, "ns"))
    text = _three_digits(longest / size) if size > 1 else f"{longest:.0f}"
    digits = len(text.partition(".")[2])
    least = 10.0**-digits
    made = [f"{ns / size:.{digits}f} {unit}" for ns in times_ns]
    return [f"<{least:.{digits}f} {unit}" if 0 < ns / size < least / 2 else shown
            for ns, shown in zip(times_ns, made, strict=True)]  # fmt: skip


def format_bytes(size: float) -> str:
    """Format a size in bytes with binary units: ``1.50 MiB``, ``12 B``."""
    for step, unit in _BYTE_STEPS:
        if abs(size) >= _ROUNDS_UP * step:
            return f"{_three_digits(size / step)} {unit}"
    return f"{size:.0f} B"


def format_ratio(ratio: float) -> str:
    """Format a share between 0 and 1: ``31.4 %``."""
    return f"{100 * ratio:.1f} %"


def format_count(count: float) -> str:
    """Format a count with thousands separators, ``12,345``, or with two decimals if it is not an integer."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.2f}"


def format_times(count: float) -> str:
    """Say how often something happens: ``once``, ``12 times``."""
    return "once" if count == 1 else f"{format_count(count)} times"


def quantity(count: int, one: str, many: str) -> str:
    """Put ``count`` before the singular or plural words: ``1 event was left out``, ``1,234 events were left out``."""
    return f"{count:,} {one if count == 1 else many}"


def _three_digits(value: float) -> str:
    """Format ``value`` with about three significant digits, never in scientific notation."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def ranks_text(ranks: Sequence[int], most: int = 8) -> str:
    """Format sorted ``ranks`` as in ``0-3, 6``, and list only the first ``most`` numbers and ranges."""
    pieces: list[list[int]] = []
    for rank in ranks:
        if not pieces or rank != pieces[-1][-1] + 1:
            pieces.append([])
        pieces[-1].append(rank)
    ranges = [text for piece in pieces for text in _range_texts(piece)]
    left = len(ranks) - sum(
        int(text.partition("-")[2] or text) - int(text.partition("-")[0]) + 1 for text in ranges[:most]
    )
    return ", ".join(ranges[:most]) + (f" and {left} more" if left else "")


def _range_texts(piece: Sequence[int]) -> list[str]:
    """Format consecutive ranks: three or more as one range, fewer as individual numbers."""
    return [f"{piece[0]}-{piece[-1]}"] if len(piece) > 2 else list(map(str, piece))


def with_date(name: str) -> str:
    """Replace PyTorch's timestamp (ns since 1970) in a file name by a date in UTC."""
    return _EPOCH_NS.sub(_date, name)


def _date(found: re.Match[str]) -> str:
    return datetime.fromtimestamp(int(found[0]) // NS_PER_S, timezone.utc).strftime("%Y-%m-%d_%H-%M-%S")
