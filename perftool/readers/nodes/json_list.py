"""Reads the list in a JSON file of compiled or analyzed nodes."""

from __future__ import annotations

from typing import Any

import orjson

from perftool.errors import InputError


def list_under(key: str, data: bytes, path: str) -> list[Any] | None:
    """The list under ``key`` of the JSON object ``data``; None if there is none. Raises InputError for damaged JSON."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: is damaged JSON ({error})") from None
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, list) else None
