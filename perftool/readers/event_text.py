"""Where one event ends and the next begins, in the text of an event array."""

from __future__ import annotations

import re

import orjson

_FIRST_KEY = rb"\{\s*\"(?:ph|name|cat|args|pid|tid|ts|dur|id|id2|bp|s|scope|cname|tts|tdur|sf|stack)\"\s*:"
# Between two events: the brace that ends one, a comma, and the first key of the next.
BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + _FIRST_KEY + rb")")
EVENT_START = re.compile(_FIRST_KEY)
_CUT_WINDOWS = (4 << 10, 256 << 10)


def parses(text: bytes) -> bool:
    """Whether ``text`` is whole events, separated by commas."""
    try:
        orjson.loads(b"[" + text + b"]")
    except orjson.JSONDecodeError:
        return False
    return True


def is_event(text: bytes) -> bool:
    """Whether ``text`` is one event: a JSON object with a phase."""
    try:
        event = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(event, dict) and "ph" in event


def last_boundary(block: bytes) -> tuple[int, int] | None:
    """Where to cut ``block``: the end of one event and the start of the next, near the block's end.

    The event before the cut must parse and be an event, so that objects nested in arguments or lists of other
    things are not taken for events; in a damaged stretch the last boundary is as good as any.
    """
    cuts: list[re.Match[bytes]] = []
    for window in (*_CUT_WINDOWS, len(block)):
        cuts = list(BOUNDARY.finditer(block, max(0, len(block) - window)))
        for before, cut in zip(reversed(cuts[:-1]), reversed(cuts[1:]), strict=True):
            if is_event(block[before.end() : cut.start() + 1]):
                return cut.start() + 1, cut.end()
        if len(block) <= window:
            break
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
