"""Reads metrics files in the text format: blocks of labelled lines, with values printed by Python's ``repr``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perftool.readers.metrics.metrics_series import RawRecord
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.python_value import parsed
from perftool.readers.text.text_lines import TextLine
from perftool.readers.text.unique_keys import decoder_of_unique

_LABEL = re.compile(r"(?P<label>Metric name|Triggered by|Generated on|Statistics): ?(?P<value>.*)")
_VALUE = re.compile(r"[ \t]+(?P<key>\w+): (?P<value>.+)")
# Python 3.11 prints the enum member, 3.10 its value.
_ENUM = "MetricDumpTrigger."


@dataclass
class _Block:
    metric: str
    labels: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, object] = field(default_factory=dict)


def text_records(lines: Iterable[TextLine], tally: IssueTally) -> Iterator[RawRecord]:
    """Yield the records that have statistics. ``tally`` counts dropped records."""
    block: _Block | None = None
    for line in lines:
        if not line.ended and line.text.strip():
            tally.note("damaged record", "the last line is truncated", line.number)
        elif label := _LABEL.match(line.text):
            if label["label"] == "Metric name":
                yield from _finished(block, tally)
                block = _Block(label["value"].strip())
            elif block is not None:
                block.labels[label["label"]] = label["value"].strip()
        elif block is not None and (value := _VALUE.match(line.text)):
            _keep(block, value, line, tally)
        elif line.text.strip():
            tally.note("unknown line", "a line of the metrics file could not be parsed", line.number)
    yield from _finished(block, tally)


def _keep(block: _Block, match: re.Match[str], line: TextLine, tally: IssueTally) -> None:
    if match["key"] in block.statistics:
        tally.note("key twice", "a metrics record has a statistic twice, so one of its values is not used", line.number)
    try:
        block.statistics[match["key"]] = parsed(match["value"].strip(), decoder_of_unique(tally))
    except (ValueError, RecursionError):
        tally.note("bad value", "a value of the metrics file cannot be read", line.number)


def _finished(block: _Block | None, tally: IssueTally) -> Iterator[RawRecord]:
    if block is None:
        return
    if not block.statistics:
        tally.note("damaged record", "a metrics record has no statistics")
        return
    trigger = block.labels.get("Triggered by")
    yield RawRecord(
        block.metric,
        None if trigger is None else trigger.removeprefix(_ENUM),
        block.labels.get("Generated on"),
        block.statistics,
    )
