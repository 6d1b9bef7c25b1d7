"""The protocol between this process and the sandbox: frames of JSON.

Rows are not pickled, because unpickling data from a compromised process could compromise this process, too.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO
from uuid import UUID

_LENGTH = struct.Struct(">I")
# The error message that the sandbox sends when a query exceeds its memory limit.
OUT_OF_MEMORY = "the query needs more memory than it may use"
# Valid frames are shorter, because rows are sent a few hundred at a time.
LONGEST_FRAME = 1 << 30
# Values of these types map directly to JSON. ``json`` also reads and writes NaN and infinities.
_PLAIN = (bool, int, float, str, type(None))
_PLAIN_TYPES = frozenset(_PLAIN)
_MAY_BE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
# DuckDB's decimals have at most 38 digits. Without a limit, 1E+999999 could become a huge string.
_MOST_DIGITS = 40
# Deeper nesting would exceed the recursion limit.
_DEEPEST = 100
# Values of other types are sent as text with a tag. Each tag has a type, and its conversions to and from text.
_AS_TEXT: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "number": (Decimal, str, Decimal),
    "moment": (datetime, datetime.isoformat, datetime.fromisoformat),
    "day": (date, date.isoformat, date.fromisoformat),
    "clock": (time, time.isoformat, time.fromisoformat),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "uuid": (UUID, str, UUID),
}


class BrokenFrameError(Exception):
    """The pipe delivered something that is not a valid message."""


def encoded(message: object) -> bytes:
    """Return ``message`` as the content of a frame."""
    return json.dumps(message).encode()


def send(pipe: BinaryIO, data: bytes) -> None:
    """Write one frame."""
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO, longest: int = LONGEST_FRAME) -> Any:
    """Return the next message, or None if the other side has closed the pipe. Raise BrokenFrameError if it is not
    JSON.
    """
    data = read_frame(pipe, longest)
    return None if data is None else decoded(data)


def read_frame(pipe: BinaryIO, longest: int) -> bytes | None:
    """Return the content of the next frame, or None if the other side has closed the pipe. Raise BrokenFrameError if
    the frame has more than ``longest`` bytes."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > longest:
        raise BrokenFrameError(f"a message of {size:,} bytes")
    data = pipe.read(size)
    return data if len(data) == size else None


def decoded(data: bytes) -> Any:
    """Parse ``data``. Raise BrokenFrameError unless it is JSON whose strings can be encoded."""
    try:
        message = json.loads(data)
        if _MAY_BE_HALF.search(data):
            # Raises an error for lone surrogates, which cannot be written to a file.
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(str(error)) from None
    return message


def packed(value: Any) -> Any:
    """Return ``value`` from a result, converted to JSON types; ``unpacked`` reverses the conversion."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return [packed(part) for part in value]
    if isinstance(value, tuple):
        return {"tuple": [packed(part) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[packed(key), packed(part)] for key, part in value.items()]}
    if isinstance(value, timedelta):
        return {"span": [value.days, value.seconds, value.microseconds]}
    for letter, (kind, write, _) in _AS_TEXT.items():
        if isinstance(value, kind):
            return {letter: write(value)}
    return str(value)


def unpacked(value: Any) -> Any:
    """Convert ``value`` back from the result of ``packed``. Raise BrokenFrameError if it is not such a result."""
    try:
        return _unpacked(value, _DEEPEST)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BrokenFrameError(f"{type(error).__name__}: {error}") from None


def _unpacked(value: Any, deepest: int) -> Any:
    if not deepest:
        raise ValueError("values nest too deeply")
    if isinstance(value, list):
        return [_unpacked(part, deepest - 1) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(_unpacked(part, deepest - 1) for part in content)
    if kind == "dict":
        return {_unpacked(key, deepest - 1): _unpacked(part, deepest - 1) for key, part in content}
    if kind == "span":
        return timedelta(*content)
    found = _AS_TEXT[kind][2](content)
    if isinstance(found, Decimal) and found.is_finite() and abs(found.adjusted()) > _MOST_DIGITS:
        raise ValueError("a number with too many digits")
    return found


def unpacked_rows(message: Any, columns: int) -> list[tuple[Any, ...]]:
    """Return the rows in ``message``. Raise BrokenFrameError unless each has ``columns`` valid values."""
    plain = "rows" in message
    rows = message.get("rows" if plain else "packed")
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == columns for row in rows):
        raise BrokenFrameError("malformed rows")
    if plain and not {type(value) for row in rows for value in row} <= _PLAIN_TYPES:
        raise BrokenFrameError("malformed values")
    return [tuple(row if plain else map(unpacked, row)) for row in rows]
