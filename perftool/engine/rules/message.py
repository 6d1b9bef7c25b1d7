"""The message of a rule: text with placeholders, which can show a value and do nothing else.

``{name}`` shows a column of the query or a threshold; ``{name:FORMAT}`` shows a number in one of the FORMATS. Braces
are doubled to stand for themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from perftool.units import format_bytes, format_count, format_ns, format_ratio

FORMATS: Mapping[str, Callable[[float], str]] = {
    "time": format_ns, "bytes": format_bytes, "percent": format_ratio, "count": format_count,
}  # fmt: skip
# The end of a column's name tells its unit, and so how a message shows it.
_UNITS = (("_ns", format_ns), ("_bytes", format_bytes), ("_ratio", format_ratio))
# A message is a line or a few of a report; a name in it may be of any length.
LONGEST = 10_000
_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True)
class Placeholder:
    """``{name}`` or ``{name:form}``."""

    name: str
    form: str | None


@cache
def parse_message(message: str) -> tuple[str | Placeholder, ...]:
    """The pieces of ``message``. Raises ValueError, naming what it is about, for a brace that begins no placeholder."""
    pieces: list[str | Placeholder] = []
    at = 0
    for brace in re.finditer(r"[{}]", message):
        start = brace.start()
        if start < at:
            continue
        pieces.append(message[at:start])
        if message[start : start + 2] in ("{{", "}}"):
            pieces.append(message[start])
            at = start + 2
        elif found := _PLACEHOLDER.match(message, start):
            if found[2] is not None and found[2] not in FORMATS:
                raise ValueError(f"{found[0]}: there is no format {found[2]}; there are {', '.join(FORMATS)}")
            pieces.append(Placeholder(found[1], found[2]))
            at = found.end()
        else:
            raise ValueError(f"{message[start : start + 40]!r} is no placeholder; write {{name}} or {{name:FORMAT}}")
    return (*pieces, message[at:])


def show_message(message: str, values: Mapping[str, Any]) -> str:
    """``message`` with ``values`` in place, at most ``LONGEST`` characters. Raises KeyError for a name without one."""
    shown: list[str] = []
    left = LONGEST
    for piece in parse_message(message):
        text = piece if isinstance(piece, str) else _shown(values, piece)
        if len(text) > left:
            return "".join([*shown, text[:left], " ..."])
        shown.append(text)
        left -= len(text)
    return "".join(shown)


def _shown(values: Mapping[str, Any], wanted: Placeholder) -> str:
    """A value under its name; times and sizes also without the unit's ending."""
    name = wanted.name
    if name in values:
        unit = next((render for ending, render in _UNITS if name.endswith(ending)), None)
    else:
        name, unit = next(
            ((name + ending, render) for ending, render in _UNITS[:2] if name + ending in values), (name, None)
        )
    value = values[name]
    render = FORMATS[wanted.form] if wanted.form else unit
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (render or format_count)(float(value))
    # Cut before it is written out: a list of a million rows has a text of its own.
    return "unknown" if value is None else value[: LONGEST + 1] if isinstance(value, str) else str(value)
