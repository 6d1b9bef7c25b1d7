"""Reads the list of compiled or analyzed nodes in a JSON file."""

from __future__ import annotations

from typing import Any

from perftool.errors import InputError
from perftool.readers.text.bounded_json import parsed
from perftool.readers.trace.envelope import holds_events


def list_under(key: str, data: bytes, path: str) -> list[Any] | None:
    """Return the list under ``key`` in the JSON object ``data``, or None if there is none. Raise InputError if ``data``
    is damaged, is a trace, or contains more lists and objects than a real file.
    """
    if holds_events(data):
        raise InputError(
            f"{path}: traceEvents come after {key!r}, too far from the start of the file to be read as a trace"
        )
    try:
        found = parsed(data)
    except ValueError as error:
        raise InputError(f"{path}: damaged JSON ({error})") from None
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else None
