"""Repairs damaged event text: keeps all readable events, and counts the others.

A stretch of events that does not parse is divided until the damage is isolated in one event.
That event is repaired as text if the damage is of a kind that real profilers write: raw control characters, bad
escapes, bad UTF-8, unescaped quotes in names, ``nan`` and ``inf``, or trailing commas. Otherwise, it is dropped.
Numbers are not converted, so times keep every digit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

import orjson

from perftool.readers.text.quoted import with_strings
from perftool.readers.trace.event_text import BOUNDARY, EVENT_START, MAX_NESTED, is_event

_BAD_ESCAPE = re.compile(r"\\(?:u(?![0-9a-fA-F]{4})|(?![\"\\/bfnrtu]))")
# C prints a NaN as ``nan`` or as ``nan(LETTERS)``.
_NOT_A_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan(?:\(\w{0,32}\))?|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
# The text that may follow a closing quote in an object or in an array. The patterns limit lengths, because every quote
# is tested.
_AFTER_STRING = {
    "{": re.compile(r'\s{0,99}(?:$|[:}]|,\s{0,99}"(?:[^"\\]|\\.){0,199}"\s{0,99}:)'),
    "[": re.compile(r"\s{0,99}(?:$|\]|,\s{0,99}[\"{\[\d\-tfnN])"),
}
_CONTROL = re.compile(r"[\x00-\x1f]")
_PAIR_OR_HALF = re.compile(r"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
_LONGEST_STEP = 4096
_SALVAGE_TRIES = 64
_BETWEEN = b" \t\r\n,"
# Longer than any real event. In longer text, quotes are not repaired, because examining every character is slow.
_LONGEST_QUOTED = 1 << 20
# The limit on the work for a damaged stretch, in bytes examined per byte. Beyond it, the rest of the stretch is
# dropped. A stretch in which every event is damaged takes 5 to 30 bytes examined per byte.
MOST_WORK = 100
_LEAST_WORK = 1 << 20
# The fixed cost of a call of the parser, in bytes examined.
_CALL = 100


@dataclass
class Mended:
    """The outcome for one piece of text: the readable events, and counts of repairs and losses.

    ``work`` is the number of bytes examined, counting every pass.
    """

    events: list[bytes] = field(default_factory=list)
    repaired: int = 0
    dropped: int = 0
    dropped_bytes: int = 0
    first_repair: int | None = None
    first_drop: int | None = None
    work: int = 0

    def parses(self, text: bytes) -> bool:
        """Whether ``text`` consists of whole events, separated by commas."""
        self.work += len(text) // 16 + _CALL
        try:
            orjson.loads(b"[" + text + b"]")
        except orjson.JSONDecodeError as error:
            self.work += error.pos
            return False
        self.work += len(text)
        return True

    def note_repair(self, offset: int) -> None:
        self.repaired += 1
        self.first_repair = offset if self.first_repair is None else self.first_repair

    def note_drop(self, offset: int, size: int) -> None:
        self.dropped += 1
        self.dropped_bytes += size
        self.first_drop = offset if self.first_drop is None else self.first_drop

    def add(self, other: Mended) -> None:
        """Add the counts of a later stretch, but not its events."""
        self.repaired += other.repaired
        self.dropped += other.dropped
        self.dropped_bytes += other.dropped_bytes
        self.first_repair = other.first_repair if self.first_repair is None else self.first_repair
        self.first_drop = other.first_drop if self.first_drop is None else self.first_drop


def mend_events(data: bytes, start: int = 0) -> Mended:
    """Read as much as possible of ``data``, comma-separated events that do not parse as a whole.

    ``start`` is the offset of ``data`` in the input. Offsets in the result count from the beginning of the input.
    """
    cuts = [0, *(match.end() for match in BOUNDARY.finditer(data)), len(data)]
    result = Mended()
    first, step = 0, _LONGEST_STEP
    most = MOST_WORK * len(data) + _LEAST_WORK
    while first < len(cuts) - 1:
        if result.work > most:
            result.note_drop(start + cuts[first], len(data) - cuts[first])
            break
        last = min(first + step, len(cuts) - 1)
        text = _piece(data, cuts[first], cuts[last])
        if not text or result.parses(text):
            result.events.extend([text] if text else [])
            first, step = last, min(2 * step, _LONGEST_STEP)
        elif last - first > 1:
            step = (last - first) // 2
        else:
            first += _mend_at(data, cuts, first, start, result)
    return result


def _mend_at(data: bytes, cuts: list[int], first: int, start: int, result: Mended) -> int:
    """Handle the piece at ``first``, which does not parse on its own; return the number of pieces consumed."""
    text = _piece(data, cuts[first], cuts[first + 1])
    offset = start + cuts[first]
    # Mending takes several passes in Python, so it counts as ten times the work.
    result.work += 10 * (len(text) + _CALL)
    if (mended := _mended(text)) is not None:
        result.note_repair(offset)
        result.events.append(mended)
        return 1
    # The boundary may be inside an event, between objects in its arguments.
    begin = cuts[first + 1] - len(data[cuts[first] : cuts[first + 1]].lstrip(_BETWEEN))
    end = begin + _end_of_event(data[begin : cuts[min(first + MAX_NESTED, len(cuts) - 1)]], result)
    if end > cuts[first + 1]:
        result.events.append(data[begin:end])
        following = bisect_right(cuts, end) - 1
        cuts[following] = end
        return following - first
    _salvage(text, offset, result)
    return 1


def _salvage(text: bytes, offset: int, result: Mended) -> None:
    """Keep the whole events before and after the garbage in ``text``, if there are any."""
    first_end = _end_of_event(text, result)
    last_start = _start_of_event(text, first_end, result)
    garbage = text[first_end:last_start].strip(_BETWEEN)
    result.events += [event for event in (text[:first_end], text[last_start:]) if event]
    if garbage:
        result.note_drop(offset + first_end, len(garbage))
    else:
        result.note_repair(offset + first_end)


def _end_of_event(text: bytes, result: Mended) -> int:
    """Return the end of the whole event at the beginning of ``text``, or 0 if there is none."""
    end = 0
    for _ in range(_SALVAGE_TRIES):
        end = text.find(b"}", end) + 1
        if end == 0 or result.parses(text[:end]):
            return end
    return 0


def _start_of_event(text: bytes, after: int, result: Mended) -> int:
    """Return the start, at or after ``after``, of the whole event that ends ``text``, or the length of ``text`` if
    there is no such event."""
    for start in list(EVENT_START.finditer(text, max(after, 1)))[-_SALVAGE_TRIES:]:
        if result.parses(text[start.start() :]) and is_event(text[start.start() :]):
            return start.start()
    return len(text)


def _piece(data: bytes, start: int, end: int) -> bytes:
    return data[start:end].strip(_BETWEEN)


def _mended(text: bytes) -> bytes | None:
    """Repair one event. Return valid JSON, or None if the event is beyond repair."""
    plain = text.decode("utf-8", errors="replace")
    for fix in (_unchanged, _escape_quotes) if len(plain) <= _LONGEST_QUOTED else (_unchanged,):
        candidate = _fix_tokens(fix(plain))
        try:
            value = orjson.loads(candidate)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict) and "ph" in value:
            return candidate.encode("utf-8", errors="replace")
    return None


def _unchanged(text: str) -> str:
    return text


def _fix_tokens(text: str) -> str:
    """Escape control characters in strings, and repair bad escapes, NaN and infinities, and trailing commas."""
    text = with_strings(text, lambda string: _CONTROL.sub(_escape_control, string))
    text = _BAD_ESCAPE.sub(lambda escape: "\\" + escape.group(), text)
    text = _PAIR_OR_HALF.sub(lambda escape: escape.group(1) or "\\ufffd", text)
    text = _NOT_A_NUMBER.sub(r"\1null", text)
    return _TRAILING_COMMA.sub(r"\1", text)


def _escape_control(char: re.Match[str]) -> str:
    return f"\\u{ord(char.group()):04x}"


def _escape_quotes(text: str) -> str:
    """Escape every quote in a string unless the text after it could follow a string."""
    out: list[str] = []
    containers = ["{"]
    inside, at = False, 0
    while at < len(text):
        char = text[at]
        step = 2 if inside and char == "\\" else 1
        if char == '"':
            if inside and not _AFTER_STRING[containers[-1]].match(text, at + 1):
                char = '\\"'
            else:
                inside = not inside
        elif not inside and char in "{[":
            containers.append(char)
        elif not inside and char in "}]" and len(containers) > 1:
            containers.pop()
        out.append(char if step == 1 else text[at : at + 2])
        at += step
    return "".join(out)
