"""Writes values as JSON, however deep they nest: orjson and Python's own module fail at some level."""

from __future__ import annotations

import json
from typing import Any


def as_json(value: Any) -> bytes:
    """``value``, parsed JSON, as JSON; numbers that JSON does not have become null."""
    pieces: list[str] = []
    # Pieces in tuples are written as they are.
    left: list[Any] = [value]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            pieces += part
        elif isinstance(part, dict):
            left.append(("}",))
            left += [one for at, (key, inner) in enumerate(reversed(part.items()))
                     for one in (inner, (json.dumps(str(key)), ":"), (",",))][:-1]  # fmt: skip
            left.append(("{",))
        elif isinstance(part, list):
            left.append(("]",))
            left += [one for inner in reversed(part) for one in (inner, (",",))][:-1]
            left.append(("[",))
        else:
            pieces.append("null" if part != part else json.dumps(part))
    return "".join(pieces).encode()
