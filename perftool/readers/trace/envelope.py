"""The JSON around the events of a trace file: where the event array starts and ends, and what surrounds it.

Events may sit under ``traceEvents`` anywhere in a top-level object, or be the whole document as a bare array.
Everything else at the top level is small metadata and comes back as Python values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from perftool.readers.trace.event_text import ends_inside_event, ends_with_event, is_event

EVENTS_KEY = b'"traceEvents"'
# A string with its escapes, one structural character, or a run of anything else (numbers, true, null).
# An unclosed string goes on to the end: to look for others inside it would take a time that grows with its square.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_EVENTS_START = re.compile(EVENTS_KEY + rb"\s*:\s*\[")
# Bounded, as it is tried at many places: no key is that long.
_AFTER_EVENTS = re.compile(rb'\s{0,999}(?:\Z|\}\s{0,999}(?:\Z|[^\s,}\]])|,\s{0,999}"(?:[^"\\]|\\.){0,999}"\s{0,999}:)')
_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")
_BLANK_LINES = re.compile(rb"\n\s*\n")
UTF8_BOM = b"\xef\xbb\xbf"
# Brackets in the metadata after the events (lists of ranks, of log lines) all come before the right one.
_TAIL_CANDIDATES = 2000
# What may follow the right one; the rest of what follows is read only then, and so many times its length in all.
_CLOSES = re.compile(rb'\s*(?:\}|,\s*"|\Z)')
_TAIL_WORK = 64


@dataclass
class Head:
    """The text up to the first event. ``start`` is the offset just after the ``[`` of the event array; ``damaged``
    counts the members of the metadata that could not be read, at least. With ``lines`` there is no array: each line is
    an event."""

    start: int
    bare: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    damaged: int = 0
    lines: bool = False


def read_head(data: bytes) -> Head | None:
    """Find the start of the event array in ``data``, the beginning of a file; None when it is not there.

    A damaged head (an unescaped quote, say) is searched for the literal key instead.
    """
    begin = len(UTF8_BOM) if data.startswith(UTF8_BOM) else 0
    while begin < len(data) and data[begin] in b" \t\r\n":
        begin += 1
    if data[begin : begin + 1] == b"[":
        return Head(begin + 1, bare=True)
    if data[begin : begin + 1] != b"{":
        return None
    metadata: dict[str, Any] = {}
    damaged = 0
    for key, value_start, value_end in _members(data, begin + 1):
        if key == EVENTS_KEY and data[value_start : value_start + 1] == b"[":
            return Head(value_start + 1, bare=False, metadata=metadata, damaged=damaged)
        if value_end is not None:
            damaged += not _keep(metadata, key, data[value_start:value_end])
    literal = _EVENTS_START.search(data, begin)
    return Head(literal.end(), bare=False, metadata=metadata, damaged=damaged + 1) if literal else None


@dataclass
class Tail:
    """The text after the last event. ``end`` is the offset of the ``]`` that closes the event array."""

    end: int
    metadata: dict[str, Any]


def read_tail(data: bytes, *, bare: bool) -> Tail | None:
    """Find the end of the event array in ``data``, the last piece of a file; None when it is cut off.

    It is a ``]`` with an event before it after which the document closes properly: a ``]`` inside an event leaves
    braces behind that do not parse, one in the metadata has no event before it. When the last event is damaged,
    it is the first ``]`` after an object that closes the document.
    """
    position, first, left = len(data), None, _TAIL_WORK * len(data)
    for _ in range(_TAIL_CANDIDATES):
        position = data.rfind(b"]", 0, position)
        if position < 0 or left < 0:
            break
        if not _CLOSES.match(data, position + 1):
            continue
        left -= len(data) - position
        metadata = _closing(data[position + 1 :].strip(), bare)
        if metadata is None:
            continue
        before = data[:position].rstrip(b" \t\r\n,")
        if bare or not before or ends_with_event(before):
            return Tail(position, metadata)
        if before.endswith(b"}"):
            first = Tail(position, metadata)
    return None if ends_inside_event(data) else first


def _closing(text: bytes, bare: bool) -> dict[str, Any] | None:
    """The metadata in ``text``, what follows the event array; None when that does not close the document."""
    if bare:
        return None if text else {}
    if not text.endswith(b"}"):
        return None
    try:
        metadata: dict[str, Any] = orjson.loads(b'{"":0' + text)
    except orjson.JSONDecodeError:
        return None
    del metadata[""]
    return metadata


def is_event_line(data: bytes) -> bool:
    """Whether the first line of ``data`` is an event by itself, as in a file of one event per line."""
    return is_event(data.split(b"\n", 1)[0])


def lines_joined(data: bytes) -> bytes:
    """Lines of events as events with commas between them, as long as before.

    A line feed cannot stand inside a string of JSON, so each one separates two events.
    """
    return _BLANK_LINES.sub(lambda blank: b" " * (len(blank[0]) - 1) + b"\n", data).replace(b"\n", b",")


def scan_end(data: bytes, start: int) -> int | None:
    """The offset of the ``]`` that closes the array whose content begins at ``start``, by counting brackets.

    Damage may unbalance the brackets, so it also takes the document's end or another key after the ``]``.
    """
    depth = 1
    for token in _TOKEN.finditer(data, start):
        text = token.group()
        if text in _OPENING:
            depth += 1
        elif text in _CLOSING:
            depth = max(depth - 1, 1 if text == b"}" else 0)
            if depth == 0 and _AFTER_EVENTS.match(data, token.end()):
                return token.start()
            depth = max(depth, 1)
    return None


def _members(data: bytes, start: int) -> Iterator[tuple[bytes, int, int | None]]:
    """Yield (key, value start, value end) of the object whose content begins at ``start``.

    The value end is None for an event array: nobody wants to walk through it.
    """
    tokens = _TOKEN.finditer(data, start)
    for token in tokens:
        key = token.group()
        if key == b"}":
            return
        if not key.startswith(b'"'):
            continue
        if (colon := next(tokens, None)) is None or colon.group() != b":":
            return
        if (value := next(tokens, None)) is None:
            return
        if key == EVENTS_KEY:
            yield key, value.start(), None
        end = _value_end(tokens, value)
        if end is None:
            return
        yield key, value.start(), end


def _value_end(tokens: Iterator[re.Match[bytes]], first: re.Match[bytes]) -> int | None:
    if first.group() not in _OPENING:
        return first.end()
    depth = 1
    for token in tokens:
        if token.group() in _OPENING:
            depth += 1
        elif token.group() in _CLOSING:
            depth -= 1
            if depth == 0:
                return int(token.end())
    return None


def _keep(metadata: dict[str, Any], key: bytes, value: bytes) -> bool:
    """Add one decoded member; one that is not valid JSON is left out. Returns whether it could be read."""
    try:
        metadata[orjson.loads(key)] = orjson.loads(value)
    except orjson.JSONDecodeError:
        # C++ writes a number that is none in its own way; nothing is lost with it.
        return value.lower().lstrip(b"-") in (b"nan", b"inf", b"infinity")
    return True
