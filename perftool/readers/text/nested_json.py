"""Writes values as JSON, however deeply they are nested."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson


def as_json(value: Any) -> bytes:
    """Write ``value``, which was parsed from JSON, as JSON. Numbers that JSON does not support become null."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # orjson refuses values nested more than 254 deep, numbers above 64 bits, and lone surrogates.
        return _any_as_json(value)


def _any_as_json(value: Any) -> bytes:
    """Like ``as_json``, but for any value, and a hundred times slower."""
    pieces: list[str] = []
    # Tuples contain finished pieces of JSON, which are written unchanged.
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            pieces += part
        elif isinstance(part, dict):
            left.append(("}",))
            left += [one for key, inner in reversed(part.items())
                     for one in (inner, (json.dumps(str(key)), ":"), (",",))][:-1]  # fmt: skip
            left.append(("{",))
        elif isinstance(part, list):
            left.append(("]",))
            left += [one for inner in reversed(part) for one in (inner, (",",))][:-1]
            left.append(("[",))
        else:
            finite = not isinstance(part, float) or math.isfinite(part)
            pieces.append(json.dumps(part) if finite else "null")
    return "".join(pieces).encode()
