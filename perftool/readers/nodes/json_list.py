"""Reads the list in a JSON file of compiled or analyzed nodes."""

from __future__ import annotations

from typing import Any

import orjson

from perftool.errors import InputError
from perftool.readers.trace.envelope import holds_events

# An object in Python needs up to thirty times the memory of its text. Objects of real files average hundreds of bytes.
_BYTES_PER_OBJECT = 128
_FEW_OBJECTS = 10_000


def list_under(key: str, data: bytes, path: str) -> list[Any] | None:
    """The list under ``key`` of the JSON object ``data``; None if there is none. Raises InputError for damaged JSON,
    for more objects than a real file has, and for a trace.
    """
    if holds_events(data):
        raise InputError(
            f"{path}: traceEvents come after {key!r}, too far from the start of the file to be read as a trace"
        )
    if (count := data.count(b"{")) > max(_FEW_OBJECTS, len(data) // _BYTES_PER_OBJECT):
        raise InputError(f"{path}: {count:,} JSON objects, more than any real file of this size has")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: damaged JSON ({error})") from None
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else None
