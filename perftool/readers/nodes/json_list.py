"""Reads the list in a JSON file of compiled or analyzed nodes."""

from __future__ import annotations

from typing import Any

import orjson

from perftool.errors import InputError
from perftool.readers.trace.envelope import holds_events


def list_under(key: str, data: bytes, path: str) -> list[Any] | None:
    """The list under ``key`` of the JSON object ``data``; None if there is none. Raises InputError for damaged JSON,
    and for a trace.
    """
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: damaged JSON ({error})") from None
    if holds_events(data):
        raise InputError(
            f"{path}: traceEvents come after {key!r}, too far from the start of the file to be read as a trace"
        )
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else None
