"""Finds event boundaries in the text of an event array."""

from __future__ import annotations

import re
from typing import Any

import orjson

_FIRST_KEY = rb"\{\s*\"(?:ph|name|cat|args|pid|tid|ts|dur|id|id2|bp|s|scope|cname|tts|tdur|sf|stack)\"\s*:"
# The text between two events: the brace that ends one, a comma, and the first key of the next.
BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + _FIRST_KEY + rb")")
EVENT_START = re.compile(_FIRST_KEY)
_CUT_WINDOWS = (4 << 10, 256 << 10)
_CUT_TRIES = 200
# The limit on the total work of all attempts, as a multiple of the block's length.
_CUT_WORK = 8
# Text that spans more boundaries than this is treated as damaged, not as one event with nested objects.
MAX_NESTED = 32


def parses(text: bytes) -> bool:
    """Whether ``text`` consists of whole JSON values, separated by commas."""
    try:
        orjson.loads(b"[" + text + b"]")
    except orjson.JSONDecodeError:
        return False
    return True


def objects_in(text: bytes) -> list[dict[str, Any]] | None:
    """Return the comma-separated objects in ``text``, or None if it does not parse or contains other values."""
    try:
        values = orjson.loads(b"[" + text + b"]")
    except orjson.JSONDecodeError:
        return None
    return values if all(isinstance(value, dict) for value in values) else None


def is_event(text: bytes) -> bool:
    """Whether ``text`` is one event: a JSON object with a phase."""
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(event, dict) and "ph" in event


def last_boundary(block: bytes) -> tuple[int, int] | None:
    """Return where to cut ``block``: the end of one event and the start of the next, near the end of the block. The
    text between an earlier boundary and the cut must be an event, which rules out objects nested in arguments or lists.
    Return None if no boundary near the end can be proven.
    """
    left = _CUT_WORK * len(block)
    for window in (*_CUT_WINDOWS, len(block)):
        cuts = list(BOUNDARY.finditer(block, max(0, len(block) - window)))
        for at in range(len(cuts) - 1, max(0, len(cuts) - _CUT_TRIES), -1):
            cut = cuts[at]
            for before in reversed(cuts[max(0, at - MAX_NESTED) : at]):
                left -= cut.start() + 1 - before.end()
                if left < 0:
                    return None
                if is_event(block[before.end() : cut.start() + 1]):
                    return cut.start() + 1, cut.end()
        if len(block) <= window:
            break
    return None


def any_boundary(block: bytes) -> tuple[int, int] | None:
    """Return the last possible boundary in ``block``, for text without a proven boundary."""
    cuts = list(BOUNDARY.finditer(block))
    return (cuts[-1].start() + 1, cuts[-1].end()) if cuts else None


def ends_with_event(text: bytes) -> bool:
    """Whether ``text`` ends with a whole event."""
    for window in (*_CUT_WINDOWS, len(text)):
        start = max(0, len(text) - window)
        cuts = list(BOUNDARY.finditer(text, start))
        if cuts:
            return is_event(text[cuts[-1].end() :])
        if start == 0:
            break
    return is_event(text)


def ends_inside_event(text: bytes) -> bool:
    """Whether ``text`` is truncated just before the closing braces of an event."""
    starts = [match.start() for match in EVENT_START.finditer(text, max(0, len(text) - _CUT_WINDOWS[-1]))]
    return any(is_event(text[start:] + missing) for start in starts[-MAX_NESTED:] for missing in (b"}", b"}}"))
