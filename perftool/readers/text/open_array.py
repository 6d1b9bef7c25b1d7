"""Reads JSON arrays that stay open unless the writer exits cleanly: metrics files, compilation statistics.

If the process is killed, the array stays open, and its last object may be incomplete. After damage, reading resumes at
the next object of the expected kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from perftool.model.valid_text import valid_json
from perftool.readers.text.bounded_json import require_few_containers
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.quoted import string_end, with_strings
from perftool.readers.text.text_lines import TextLine
from perftool.readers.text.unique_keys import decoder_of_unique

# A faster pattern for strings without escapes.
_WITHOUT_ESCAPES = re.compile(r'"[^"]*("|\Z)')
# After an incomplete object, the braces are unbalanced, so the rest is decoded in pieces of this size.
_MAX_PIECE = 16 << 20
# The limit on failed decoding is _MOST_WORK times the length of the text plus _LEAST_WORK, in characters. A failed call
# counts as the characters that it read plus _CALL, or as _DEEP if the nesting is too deep.
_MOST_WORK, _LEAST_WORK, _CALL, _DEEP = 8, 1 << 20, 1000, 20_000
_FAR = 64 << 10


def array_objects(lines: Iterable[TextLine], start: re.Pattern[str], tally: IssueTally) -> Iterator[dict[str, Any]]:
    """Yield the complete objects of the array. ``tally`` counts dropped and missing objects.

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
    if "\\" in text:
        bare = with_strings(text, lambda string: "" if string_end(string, 0) else string[1:])
    else:
        bare = _WITHOUT_ESCAPES.sub(lambda string: "" if string[1] else string[0][1:], text)
    return bare.count("{") - bare.count("}")


def _decode(text: str, start: re.Pattern[str], tally: IssueTally) -> Iterator[dict[str, Any]]:
    """Yield every object in ``text``, which must not begin inside an object."""
    try:
        require_few_containers(text)
    except ValueError as error:
        tally.note("damaged text", f"a long stretch of text was left out: {error}")
        return
    text = valid_json(text)
    decoder = decoder_of_unique(tally)
    at, left = text.find("{"), _MOST_WORK * len(text) + _LEAST_WORK
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            tally.note("damaged record", "a record is truncated or damaged")
            # Limit the work, because decoding each object inside an incomplete one would fail at the same place.
            left -= error.pos - at + _CALL if isinstance(error, json.JSONDecodeError) else _DEEP
            if left < 0:
                tally.note("damaged text", "a long stretch of unreadable text was left out")
                return
            if at > _FAR:
                # Drop the text already read, because JSONDecodeError counts the lines before its position, which is
                # slow.
                text, at = text[at:], 0
            match = start.search(text, at + 1)
            at = match.start() if match else -1
            continue
        yield value
        at = text.find("{", end)
