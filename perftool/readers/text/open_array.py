"""JSON arrays that only an orderly exit of the writer closes: metrics files, compilation statistics.

A killed process leaves the array open and perhaps half an object. Objects are therefore read one by one;
after damage, reading goes on where the next object of the expected kind starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import TextLine

# One without an end is matched too, or each of its quotes would be a start that is tried up to the end.
_STRING = re.compile(r'"(?:[^"\\]|\\.)*("|\\?\Z)', re.DOTALL)
_DECODER = json.JSONDecoder()
# After half an object the braces never balance again; the rest is then decoded in pieces of this size.
_MAX_PIECE = 16 << 20


def array_objects(lines: Iterable[TextLine], start: re.Pattern[str], tally: IssueTally) -> Iterator[dict[str, Any]]:
    """Yield the complete objects of the array; what is dropped or missing goes to ``tally``.

    ``start`` matches the beginning of an object of the expected kind.
    """
    pending: list[str] = []
    depth = size = 0
    closed = True
    for line in lines:
        text = line.text
        pending.append(text)
        size += len(text)
        depth += _depth(text)
        closed = text.rstrip().endswith("]") if text.strip() else closed
        if depth <= 0 or size > _MAX_PIECE:
            yield from _decode("\n".join(pending), start, tally)
            pending, depth, size = [], 0, 0
    yield from _decode("\n".join(pending), start, tally)
    if not closed:
        message = "the array is not closed: the process ended before it could write its last records"
        tally.note("unterminated", message)


def _depth(text: str) -> int:
    bare = _STRING.sub(lambda string: "" if string[1] == '"' else string[0][1:], text)
    return bare.count("{") - bare.count("}")


def _decode(text: str, start: re.Pattern[str], tally: IssueTally) -> Iterator[dict[str, Any]]:
    """Every object in ``text``, which begins and ends anywhere outside an object."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            tally.note("damaged record", "a record is cut off or damaged")
            match = start.search(text, at + 1)
            at = match.start() if match else -1
            continue
        yield value
        at = text.find("{", end)
