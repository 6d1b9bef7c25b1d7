"""Draws the time by kind as a bar that is readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from perftool.reporters.colours import colour
from perftool.reporters.time_parts import TimePart
from perftool.units import format_ratio

_WIDEST = 100
_PIPE = 80
# Device work is dark, and idle time is light. Encodings without block characters get similar ASCII characters.
_MARKS = {False: "█▓▒", True: "░:·"}
_PLAIN_MARKS = {False: "#%=", True: "-:."}
_SMALLEST = 0.005


def bar(parts: Sequence[TimePart], console: Console) -> list[Text]:
    """Draw the bar and its legend: one line for work, and one for the causes of idle time."""
    if not parts:
        return []
    width = min(console.width, _WIDEST) if console.width <= _WIDEST * 10 else _PIPE
    marked = _marked(parts, console)
    cells = _cells([part.share for part in parts], width)
    drawn = Text()
    for (part, mark), count in zip(marked, cells, strict=True):
        drawn.append(mark * count, colour(part.kind, dark=True))
    legends = (_legend([pair for pair in marked if pair[0].idle is idle], width) for idle in (False, True))
    return [drawn, *(line for line in legends if line)]


def _marked(parts: Sequence[TimePart], console: Console) -> list[tuple[TimePart, str]]:
    """Assign a mark to each part. If there are too few marks, several parts share the last one."""
    marks = _MARKS if console.encoding.lower().startswith("utf") else _PLAIN_MARKS
    used = {False: 0, True: 0}
    pairs = []
    for part in parts:
        choice = marks[part.idle]
        pairs.append((part, choice[min(used[part.idle], len(choice) - 1)]))
        used[part.idle] += 1
    return pairs


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Divide ``width`` cells so that each part ends where its cumulative share ends."""
    whole, ends = sum(shares), [0]
    for at in range(len(shares)):
        ends.append(round(sum(shares[: at + 1]) / whole * width))
    return [end - start for start, end in pairwise(ends)]


def _legend(marked: Sequence[tuple[TimePart, str]], width: int) -> Text:
    """List the largest parts that fit on one line, and the sum of the rest."""
    wanted = sorted((pair for pair in marked if pair[0].share >= _SMALLEST), key=lambda pair: -pair[0].share)
    while wanted:
        line = _entries([pair for pair in marked if pair in wanted], marked)
        if line.cell_len <= width or len(wanted) == 1:
            return line
        wanted.pop()
    return Text()


def _entries(shown: Sequence[tuple[TimePart, str]], every: Sequence[tuple[TimePart, str]]) -> Text:
    whole = sum(part.share for part, _ in every)
    line = Text(f"idle {format_ratio(whole)}:" if every[0][0].idle else "")
    for part, mark in shown:
        line.append("  " if line else "")
        line.append(mark, colour(part.kind, dark=True))
        line.append(f" {part.label} {format_ratio(part.share)}")
    rest = whole - sum(part.share for part, _ in shown)
    if rest >= _SMALLEST:
        line.append(f"  other {format_ratio(rest)}", "dim")
    return line
