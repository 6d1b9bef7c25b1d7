"""What goes through the pipe between this process and the room: frames of JSON, and the values of a row in JSON.

JSON on purpose: unpickling what a captured process sends would hand over this one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO
from uuid import UUID

_LENGTH = struct.Struct(">I")
# What the room answers when the memory it may have is used up.
OUT_OF_MEMORY = "it needs more memory than a query may have"
# No honest frame is longer: rows are sent a few hundred at a time, and cut before.
LONGEST_FRAME = 1 << 30
# A value of these types is its own JSON. ``json`` writes and reads NaN and the infinities too.
_PLAIN = (bool, int, float, str, type(None))
# The other types by a letter, each with what turns a value into text and text into a value.
_AS_TEXT: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "number": (Decimal, str, Decimal),
    "moment": (datetime, datetime.isoformat, datetime.fromisoformat),
    "day": (date, date.isoformat, date.fromisoformat),
    "clock": (time, time.isoformat, time.fromisoformat),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "uuid": (UUID, str, UUID),
}


class BrokenFrameError(Exception):
    """What came through the pipe is no message of ours."""


def encoded(message: object) -> bytes:
    """``message`` as the content of a frame."""
    return json.dumps(message).encode()


def send(pipe: BinaryIO, data: bytes) -> None:
    """Write one frame."""
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO, longest: int = LONGEST_FRAME) -> Any:
    """The next message; None when the other side has closed. Raises BrokenFrameError for anything else than JSON."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    if size > longest:
        raise BrokenFrameError(f"a message of {size:,} bytes")
    data = pipe.read(size)
    if len(data) < size:
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise BrokenFrameError(str(error)) from None


def packed(value: Any) -> Any:
    """``value`` of a result as JSON; ``unpacked`` undoes it."""
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
    """The value that ``packed`` made ``value`` from. Raises BrokenFrameError when it made it from none."""
    if isinstance(value, list):
        return [unpacked(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    try:
        if kind == "tuple":
            return tuple(map(unpacked, content))
        if kind == "dict":
            return {unpacked(key): unpacked(part) for key, part in content}
        if kind == "span":
            return timedelta(*content)
        return _AS_TEXT[kind][2](content)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BrokenFrameError(str(error)) from None


def unpacked_rows(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows of packed values as they were."""
    return [tuple(map(unpacked, row)) for row in rows]
