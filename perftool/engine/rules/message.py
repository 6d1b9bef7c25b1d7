"""Messages of rules: strings with placeholders for values.

``{name}`` shows a column of the query or a threshold, ``{name:FORMAT}`` a number in one of the FORMATS.
``{name:one|many}`` shows the words before the bar if the number is 1, and otherwise those after it. A doubled brace
stands for a literal brace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from perftool.units import format_bytes, format_count, format_ns, format_ratio, format_times

FORMATS: Mapping[str, Callable[[float], str]] = {
    "time": format_ns, "bytes": format_bytes, "percent": format_ratio, "count": format_count, "times": format_times,
}  # fmt: skip
# The default format of a column, by the unit suffix in its name.
_UNITS = (("_ns", format_ns), ("_bytes", format_bytes), ("_ratio", format_ratio))
# The longest message, in characters. A name in a message may have any length.
LONGEST = 10_000
# The column with a clause about the result of the replay. Rules put it at the end of their message.
PREDICTION = "prediction"
_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+|[^{}|]+\|[^{}|]+))?\}")


@dataclass(frozen=True)
class Placeholder:
    """``{name}``, ``{name:form}`` or ``{name:one|many}``."""

    name: str
    form: str | None


@cache
def parse_message(message: str) -> tuple[str | Placeholder, ...]:
    """Split ``message`` into literal text and placeholders. Raise ValueError for a brace that does not start a
    placeholder, and for an unknown format."""
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
            if found[2] is not None and not _is_form(found[2]):
                raise ValueError(f"{found[0]}: there is no format {found[2]}; the formats are {', '.join(FORMATS)}")
            pieces.append(Placeholder(found[1], found[2]))
            at = found.end()
        else:
            raise ValueError(f"{message[start : start + 40]!r} is not a placeholder; write {{name}} or {{name:FORMAT}}")
    return (*pieces, message[at:])


def show_message(message: str, values: Mapping[str, Any]) -> str:
    """Fill ``values`` into ``message``, and cut it to ``LONGEST`` characters. Raise KeyError for an unknown name."""
    shown: list[str] = []
    left = LONGEST
    for piece in parse_message(message):
        text = piece if isinstance(piece, str) else _shown(values, piece)
        if len(text) > left:
            return "".join([*shown, text[:left], " ..."])
        shown.append(text)
        left -= len(text)
    return "".join(shown)


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Replace those placeholders in ``text`` that have a value in ``values``. Other braces stay as they are."""

    def filled(found: re.Match[str]) -> str:
        known = found[1] in values and (found[2] is None or _is_form(found[2]))
        return _shown(values, Placeholder(found[1], found[2])) if known else found[0]

    return _PLACEHOLDER.sub(filled, text)


def without_plurals(message: str) -> str:
    """Replace each ``{name:one|many}`` in ``message`` by the plural, for people who read the template."""
    return _PLACEHOLDER.sub(lambda found: (found[2] or "").partition("|")[2] or found[0], message)


def _is_form(form: str) -> bool:
    return form in FORMATS or "|" in form


def _shown(values: Mapping[str, Any], wanted: Placeholder) -> str:
    """Return the text that replaces a placeholder. The placeholder's name may omit the unit suffix of a time or
    size.
    """
    name = wanted.name
    if name in values:
        unit = next((render for ending, render in _UNITS if name.endswith(ending)), None)
    else:
        name, unit = next(
            ((name + ending, render) for ending, render in _UNITS[:2] if name + ending in values), (name, None)
        )
    value = values[name]
    if wanted.form and "|" in wanted.form:
        one, _, many = wanted.form.partition("|")
        return one if value == 1 else many
    render = FORMATS[wanted.form] if wanted.form else unit
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (render or format_count)(float(value))
    return "unknown" if value is None else value[: LONGEST + 1] if isinstance(value, str) else str(value)
