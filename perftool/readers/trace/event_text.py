"""Where one event ends and the next begins, in the text of an event array."""

from __future__ import annotations

import re
from typing import Any

import orjson

_FIRST_KEY = rb"\{\s*\"(?:ph|name|cat|args|pid|tid|ts|dur|id|id2|bp|s|scope|cname|tts|tdur|sf|stack)\"\s*:"
# Between two events: the brace that ends one, a comma, and the first key of the next.
BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + _FIRST_KEY + rb")")
EVENT_START = re.compile(_FIRST_KEY)
_CUT_WINDOWS = (4 << 10, 256 << 10)
_CUT_TRIES = 200
# All tries together look at so many times the length of a block: a bound that is linear in it.
_CUT_WORK = 8
# Text that spans more boundaries than this is not one event with nested objects, it is damage.
MAX_NESTED = 32


def parses(text: bytes) -> bool:
    """Whether ``text`` is whole events, separated by commas."""
    try:
        orjson.loads(b"[" + text + b"]")
    except orjson.JSONDecodeError:
        return False
    return True


def objects_in(text: bytes) -> list[dict[str, Any]] | None:
    """The objects in comma-separated ``text``; None when it does not parse or holds other things too."""
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
    """Where to cut ``block``: the end of one event and the start of the next, near the block's end.

    The text before the cut, back to an earlier boundary, must be an event, so that objects nested in arguments or
    lists of other things are not taken for events. None when nothing near the end proves to be one.
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
    """The last place in ``block`` that looks like a boundary, for text in which nothing can be proved."""
    cuts = list(BOUNDARY.finditer(block))
    return (cuts[-1].start() + 1, cuts[-1].end()) if cuts else None


def ends_with_event(text: bytes) -> bool:
    """Whether the last thing in ``text`` is an event."""
    for window in (*_CUT_WINDOWS, len(text)):
        start = max(0, len(text) - window)
        cuts = list(BOUNDARY.finditer(text, start))
        if cuts:
            return is_event(text[cuts[-1].end() :])
        if start == 0:
            break
    return is_event(text)


def ends_inside_event(text: bytes) -> bool:
    """Whether ``text`` is cut off just before the closing braces of an event."""
    starts = [match.start() for match in EVENT_START.finditer(text, max(0, len(text) - _CUT_WINDOWS[-1]))]
    return any(is_event(text[start:] + missing) for start in starts[-MAX_NESTED:] for missing in (b"}", b"}}"))
