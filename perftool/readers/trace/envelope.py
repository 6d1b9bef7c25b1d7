"""Parses the JSON around the events of a trace file: the bounds of the event array, and the metadata.

The events are either under ``traceEvents`` in the top-level object, or a bare array that is the whole document.
Everything else at the top level is small metadata, which is returned as Python values.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from perftool.readers.files.stream import BLOCK, ByteStream
from perftool.readers.text.quoted import string_end
from perftool.readers.trace.event_text import ends_inside_event, ends_with_event, is_event

EVENTS_KEY = b'"traceEvents"'
# A string with few escapes, one structural character, a quote, or a run of anything else (numbers, true, null).
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*){0,99}"|[\[\]{},:"]|[^\s\[\]{},:"]+', re.DOTALL)
_EVENTS_START = re.compile(EVENTS_KEY + rb"\s*:\s*\[")
# Any letter of the key may be written as an escape.
_ESCAPED = b"\\u00"
_ANY_EVENTS_KEY = re.compile(
    b'"' + b"".join(rb"(?:%c|\\u00(?i:%02x))" % (letter, letter) for letter in EVENTS_KEY[1:-1]) + b'"'
)
# In JSON inside a string, escapes have more than one backslash.
_ESCAPED_ASCII = re.compile(rb"(?<!\\)\\+u00([2-7][0-9a-fA-F])")
# These patterns begin with the key, because searching for a quote first would be slower. Other JSON may contain the
# same keys with numbers as values: traceEvents in a tokenizer's vocabulary, ph in measurements of acidity.
_HOLDS_EVENTS = re.compile(rb'traceEvents(?<="traceEvents)\\*"\s*:\s*(?:[\[{n]|\\*")')
_HOLDS_EVENT = re.compile(rb'ph(?<="ph)\\*"\s*:\s*\\*"[^\\]\\*"')
_HOLDS_PH = re.compile(rb'ph(?<="ph)"\s*:')
_SHOWS_PH = re.compile(rb'ph(?<="ph)\\*"')
# Longer than the key that this pattern finds, if all of its letters are escaped several times.
LONGEST_EVENT_KEY = 256
_HOLDS_TIMES = [re.compile(rb'%b(?<="%b)\\*"\s*:' % (key, key)) for key in (b"ts", b"dur")]
# The pattern limits lengths, because it is tried in many places.
_AFTER_EVENTS = re.compile(rb'\s{0,999}(?:\Z|\}\s{0,999}(?:\Z|[^\s,}\]])|,\s{0,999}"(?:[^"\\]|\\.){0,999}"\s{0,999}:)')
_OPENING, _CLOSING = frozenset(b"{["), frozenset(b"}]")
_QUOTE, _COLON, _CLOSING_BRACE = b'":}'
_BLANK = re.compile(rb"\s*")
_BLANK_LINES = re.compile(rb"\n\s*\n")
UTF8_BOM = b"\xef\xbb\xbf"
# Limits the search from the end of the text, which encounters all brackets of the trailing metadata first.
_TAIL_CANDIDATES = 2000
# Metadata has a few thousand values. Metadata with more than a million could take gigabytes, so it is not read.
_MOST_TOKENS = 1_000_000
# The beginning of the text after the closing bracket of the events. Text that begins otherwise is not parsed. The total
# length of the text examined is limited to _TAIL_WORK times the length of the input.
_CLOSES = re.compile(rb'\s*(?:\}|,\s*"|\Z)')
_TAIL_WORK = 64


@dataclass
class Head:
    """The text up to the first event.

    ``start``: the offset after the ``[`` of the event array.
    ``bare``: whether the array is the whole document rather than a member of an object with metadata.
    ``damaged``: at least this many members of the metadata are unreadable.
    ``lines``: whether there is one event per line instead of an array.
    """

    start: int
    bare: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    damaged: int = 0
    lines: bool = False


def read_head(data: bytes) -> Head | None:
    """Find the start of the event array in ``data``, the beginning of a file. Return None if there is none.

    If the metadata before it is damaged (for example, by an unescaped quote) or has too many values, the first
    occurrence of the key that is followed by an array counts.
    """
    begin = _after_blanks(data)
    if data[begin : begin + 1] == b"[":
        return Head(begin + 1, bare=True)
    if data[begin : begin + 1] != b"{" or not _names_events(data):
        return None
    metadata: dict[str, Any] = {}
    damaged = 0
    for key, value_start, value_end in _members(data, begin + 1):
        if _is_events_key(key) and data[value_start : value_start + 1] == b"[":
            return Head(value_start + 1, bare=False, metadata=metadata, damaged=damaged)
        if value_end is not None:
            damaged += not _keep(metadata, key, data[value_start:value_end])
    literal = _EVENTS_START.search(data, begin)
    return Head(literal.end(), bare=False, metadata=metadata, damaged=damaged + 1) if literal else None


def head_of(stream: ByteStream) -> tuple[Head | None, bytes]:
    """Read the head of a file from ``stream``, and return it with the text that was read.

    The metadata of a large cluster may be longer than the first block. The head is None if the first 8 MiB contain no
    event array, not counting blank blocks before them.
    """
    data = b""
    for block in stream.blocks():
        data = data + block if data.strip() else block
        # Only an object has metadata, which may be long.
        begin = data.removeprefix(UTF8_BOM).lstrip()[:1]
        if (head := read_head(data)) is not None or (begin and len(data) >= BLOCK) or begin not in (b"", b"{"):
            return head, data
    return None, data


def holds_events(data: bytes) -> bool:
    """Whether ``data``, a whole JSON document, may be a trace: it contains ``traceEvents`` or an event at any depth,
    including in JSON inside a string.

    Callers check this before any other key, so that no other reader drops the events.
    """
    plain = _without_escapes(data)
    if _HOLDS_EVENTS.search(plain) or _HOLDS_EVENT.search(plain):
        return True
    begin = _after_blanks(plain)
    return plain[begin : begin + 1] == b"[" and _HOLDS_PH.search(plain, begin) is not None


def shows_events(data: bytes) -> bool:
    """Whether ``data``, a piece of any text, contains a key that only events have."""
    return _SHOWS_PH.search(_without_escapes(data)) is not None


def holds_times(data: bytes) -> bool:
    """Whether ``data``, or JSON in a string in it, contains the keys for the start and the length of an event."""
    plain = _without_escapes(data)
    return all(key.search(plain) for key in _HOLDS_TIMES)


def _without_escapes(data: bytes) -> bytes:
    """Return ``data`` with plain letters and quotes in place of their escapes."""
    return _ESCAPED_ASCII.sub(lambda code: bytes([int(code[1], 16)]), data) if _ESCAPED in data else data


def _names_events(data: bytes) -> bool:
    return EVENTS_KEY in data or (_ESCAPED in data and _ANY_EVENTS_KEY.search(data) is not None)


def _is_events_key(key: bytes) -> bool:
    return key == EVENTS_KEY or (b"\\" in key and _ANY_EVENTS_KEY.fullmatch(key) is not None)


@dataclass
class Tail:
    """The text after the last event. ``end`` is the offset of the ``]`` that closes the event array. ``unread`` means
    that the metadata has too many values and was not read."""

    end: int
    metadata: dict[str, Any]
    unread: bool = False


def read_tail(data: bytes, *, bare: bool) -> Tail | None:
    """Find the end of the event array in ``data``, the last piece of a file. Return None if the file is truncated.

    The end is a ``]`` after an event, followed by text that closes the document. After a ``]`` inside an event, braces
    are unbalanced, and a ``]`` in the metadata does not follow an event. If the last event is damaged, the end is the
    first ``]`` after an object that is followed by text that closes the document.
    """
    position, first, left = len(data), None, _TAIL_WORK * len(data)
    for _ in range(_TAIL_CANDIDATES):
        position = data.rfind(b"]", 0, position)
        if position < 0 or left < 0:
            break
        if not _CLOSES.match(data, position + 1):
            continue
        left -= len(data) - position
        text = data[position + 1 :].strip()
        dense = not bare and is_dense(text)
        metadata = {} if dense else _closing(text, bare)
        if metadata is None:
            continue
        # The text before the bracket is copied, and may be parsed as one event.
        left -= position
        before = data[:position].rstrip(b" \t\r\n,")
        if bare or not before or ends_with_event(before):
            return Tail(position, metadata, dense)
        if before.endswith(b"}"):
            first = Tail(position, metadata, dense)
    return None if ends_inside_event(data) else first


def is_dense(text: bytes) -> bool:
    """Whether ``text`` has too many values to be metadata."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") > _MOST_TOKENS


def _closing(text: bytes, bare: bool) -> dict[str, Any] | None:
    """Return the metadata in ``text``, which follows the event array, or None if ``text`` does not close the
    document.
    """
    if bare:
        return None if text else {}
    if not text.endswith(b"}"):
        return None
    try:
        return after_events(text)
    except orjson.JSONDecodeError:
        return None


def after_events(text: bytes) -> dict[str, Any]:
    """Return the metadata in ``text``, which follows the event array and closes the document. If the key of the events
    occurs again, its value is a list of all values under this key.

    Raise orjson.JSONDecodeError for any other text.
    """
    document = b'{"":0' + text
    metadata: dict[str, Any] = orjson.loads(document)
    del metadata[""]
    if "traceEvents" in metadata:
        again: list[Any] = []
        for key, start, end in _members(document, 1):
            if _is_events_key(key) and end is not None:
                value = orjson.loads(document[start:end])
                again += value if isinstance(value, list) else [value]
        metadata["traceEvents"] = again
    return metadata


def is_event_line(data: bytes) -> bool:
    """Whether the first line of ``data`` is a complete event, as in a file with one event per line."""
    return is_event(data.split(b"\n", 1)[0])


def lines_joined(data: bytes) -> bytes:
    """Replace the line feeds between events with commas, without changing the length.

    JSON strings cannot contain line feeds, so each of them separates two events.
    """
    return _BLANK_LINES.sub(lambda blank: b" " * (len(blank[0]) - 1) + b"\n", data).replace(b"\n", b",")


def scan_end(data: bytes, start: int) -> int | None:
    """Return the offset of the ``]`` that closes the array whose content begins at ``start``, found by counting
    brackets.

    Damage may unbalance the brackets, so the ``]`` must be followed by the end of the document or by another key.
    """
    depth = 1
    for begin, end in _tokens(data, start):
        first = data[begin]
        if first in _OPENING:
            depth += 1
        elif first in _CLOSING:
            depth = max(depth - 1, 1 if first == _CLOSING_BRACE else 0)
            if depth == 0 and _AFTER_EVENTS.match(data, end):
                return begin
            depth = max(depth, 1)
    return None


def top_keys(data: bytes) -> Iterator[str]:
    """Yield the keys of the object at the beginning of ``data``, which may be truncated, or none if there is no
    object.
    """
    start = _after_blanks(data)
    if data[start : start + 1] == b"{":
        for key, _, _ in _members(data, start + 1, cut=True):
            with contextlib.suppress(orjson.JSONDecodeError):
                yield str(orjson.loads(key))


def _after_blanks(data: bytes) -> int:
    return _BLANK.match(data, len(UTF8_BOM) if data.startswith(UTF8_BOM) else 0).end()  # type: ignore[union-attr]


def _tokens(data: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each token from ``start`` on. An unclosed string extends to the end."""
    at: int | None = start
    while at is not None:
        begin, at = at, None
        for token in _TOKEN.finditer(data, begin):
            begin, end = token.span()
            if end == begin + 1 and data[begin] == _QUOTE:
                at = end = string_end(data, begin) or len(data)
            yield begin, end
            if at is not None:
                break


def _members(data: bytes, start: int, *, cut: bool = False) -> Iterator[tuple[bytes, int, int | None]]:
    """Yield (key, value start, value end) for each member of the object whose content begins at ``start``.

    The value end is None for an event array, which is not traversed, and, with ``cut``, for an incomplete last value.
    Stop after ``_MOST_TOKENS`` tokens.
    """
    tokens = islice(_tokens(data, start), _MOST_TOKENS)
    for begin, end in tokens:
        if data[begin] == _CLOSING_BRACE:
            return
        if data[begin] != _QUOTE:
            continue
        key = data[begin:end]
        if (colon := next(tokens, None)) is None or data[colon[0]] != _COLON:
            return
        if (value := next(tokens, None)) is None:
            return
        if _is_events_key(key):
            yield key, value[0], None
        value_end = _value_end(data, tokens, value)
        if value_end is not None or cut:
            yield key, value[0], value_end
        if value_end is None:
            return


def _value_end(data: bytes, tokens: Iterator[tuple[int, int]], first: tuple[int, int]) -> int | None:
    if data[first[0]] not in _OPENING:
        return first[1]
    depth = 1
    for begin, end in tokens:
        if data[begin] in _OPENING:
            depth += 1
        elif data[begin] in _CLOSING:
            depth -= 1
            if depth == 0:
                return end
    return None


def _keep(metadata: dict[str, Any], key: bytes, value: bytes) -> bool:
    """Add one member to ``metadata`` if its value is valid JSON. Return False if the value is damaged."""
    try:
        metadata[orjson.loads(key)] = orjson.loads(value)
    except orjson.JSONDecodeError:
        # C++ writes NaN and infinity this way. They are left out, but do not count as damage.
        return value.lower().lstrip(b"-") in (b"nan", b"inf", b"infinity")
    return True
