"""Reads the metrics that Gaudi's bridge writes to ``PT_HPU_METRICS_FILE``, as JSON or as text."""

from __future__ import annotations

from itertools import chain
from os import PathLike, fspath

from perftool.model.records import LogReading, combine
from perftool.readers.files.rank_name import rank_of
from perftool.readers.metrics.metrics_json import json_records
from perftool.readers.metrics.metrics_series import MetricsSeries
from perftool.readers.metrics.metrics_text import text_records
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.text_lines import MAX_JSON_LINE, Source, read_lines


def read(source: Source, rank: int | None = None) -> LogReading:
    """Read the snapshots in a file, and the fallbacks and compilations that they report.

    The rank comes from the file's name (``m-rank3.json.1``) unless it is given. Raise InputError if the file cannot be
    opened or read.
    """
    if rank is None and isinstance(source, (str, PathLike)):
        rank = rank_of(fspath(source))
    tally = IssueTally()
    series = MetricsSeries(tally, rank)
    lines = read_lines(source, tally, MAX_JSON_LINE)
    first = next((line for line in lines if line.text.strip()), None)
    if first is not None:
        parse = json_records if first.text.lstrip()[:1] in "[{" else text_records
        for record in parse(chain((first,), lines), tally):
            series.feed(record)
    return combine((series.reading(), LogReading(issues=tally.issues())), kind="metrics")
