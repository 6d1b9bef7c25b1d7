"""Reads metrics files in JSON: an array of records, one per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from perftool.readers.metrics.metrics_series import RawRecord
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.open_array import array_objects
from perftool.readers.text.text_lines import TextLine

_START = re.compile(r'\{\s*"metric_name"')


def json_records(lines: Iterable[TextLine], tally: IssueTally) -> Iterator[RawRecord]:
    """Yield the complete records. ``tally`` counts dropped and missing records."""
    for value in array_objects(lines, _START, tally):
        record = _record(value)
        if record is None:
            tally.note("not a metric", "an object in the file is not a metrics record")
        elif not record.statistics:
            tally.note("damaged record", "a metrics record has no statistics")
        else:
            yield record


def _record(value: dict[str, Any]) -> RawRecord | None:
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
