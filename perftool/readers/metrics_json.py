"""Metrics files in JSON: an array that only an orderly exit closes, one record a line, each flushed whole.

A killed process leaves the array open and perhaps half a record. Records are therefore read one by one; after
damage the next ``{"metric_name"`` starts afresh.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from perftool.readers.issue_tally import IssueTally
from perftool.readers.metrics_series import RawRecord
from perftool.readers.text_lines import TextLine

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_START = re.compile(r'\{\s*"metric_name"')
_DECODER = json.JSONDecoder()
# After half a record the braces never balance again; what follows is then decoded in pieces of this size.
_MAX_PIECE = 16 << 20


def json_records(lines: Iterable[TextLine], tally: IssueTally) -> Iterator[RawRecord]:
    """Yield the complete records; what is dropped or missing goes to ``tally``."""
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
            yield from _decode("\n".join(pending), tally)
            pending, depth, size = [], 0, 0
    yield from _decode("\n".join(pending), tally)
    if not closed:
        tally.note(
            "unterminated",
            "the array is not closed: the process ended before it could write its last records",
        )


def _depth(text: str) -> int:
    bare = _STRING.sub("", text)
    return bare.count("{") - bare.count("}")


def _decode(text: str, tally: IssueTally) -> Iterator[RawRecord]:
    """Every record in ``text``, which begins and ends anywhere outside a record."""
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            tally.note("damaged record", "a metrics record is cut off or damaged")
            start = _START.search(text, at + 1)
            at = start.start() if start else -1
            continue
        record = _record(value)
        if record is None:
            tally.note("not a metric", "an object in the file is not a metrics record")
        else:
            yield record
        at = text.find("{", end)


def _record(value: object) -> RawRecord | None:
    if not isinstance(value, dict):
        return None
    metric, statistics = value.get("metric_name"), value.get("statistics")
    if not isinstance(metric, str) or not isinstance(statistics, dict):
        return None
    trigger, generated_on = value.get("triggered_by"), value.get("generated_on")
    return RawRecord(
        metric,
        trigger if isinstance(trigger, str) else None,
        generated_on if isinstance(generated_on, str) else None,
        statistics,
    )
