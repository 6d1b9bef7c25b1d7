"""Runs a reader on a whole input. The program itself passes log lines and CSV rows to its readers one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from perftool.model.inputs import ImportIssue
from perftool.model.records import LogReading, combine
from perftool.readers.logs.banner import BannerScanner
from perftool.readers.logs.fallback_log import FallbackScanner
from perftool.readers.logs.runtime_log import runtime_scanners
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, read_log_lines
from perftool.readers.text.text_lines import Source
from perftool.readers.trace.profiler_csv import CounterSample, ProfilerSlice, iter_records


class Scanner(Protocol):
    def feed(self, line: LogLine) -> None: ...

    def reading(self) -> LogReading: ...


def read_with(make: Callable[[IssueTally], Sequence[Scanner]], source: Source, rank: int | None = None) -> LogReading:
    """Return the records that the scanners from ``make`` found, and the issues."""
    tally = IssueTally()
    scanners = make(tally)
    for line in read_log_lines(source, tally, rank):
        for scanner in scanners:
            scanner.feed(line)
    return combine((*(scanner.reading() for scanner in scanners), LogReading(issues=tally.issues())))


read_banner = partial(read_with, lambda tally: (BannerScanner(tally),))
read_fallbacks = partial(read_with, lambda tally: (FallbackScanner(tally),))
read_events = partial(read_with, runtime_scanners)


@dataclass(frozen=True)
class CsvReading:
    slices: tuple[ProfilerSlice, ...] = ()
    samples: tuple[CounterSample, ...] = ()
    issues: tuple[ImportIssue, ...] = ()


def read_csv(source: Source) -> CsvReading:
    """Return the slices and samples in a CSV file from the native profiler, and the issues."""
    tally = IssueTally()
    records = list(iter_records(source, tally))
    slices = tuple(record for record in records if isinstance(record, ProfilerSlice))
    samples = tuple(record for record in records if isinstance(record, CounterSample))
    return CsvReading(slices, samples, tally.issues())
