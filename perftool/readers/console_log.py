"""A log as people have it: fallback tables, banner and runtime lines of several ranks in one file."""

from __future__ import annotations

from collections.abc import Iterable

from perftool.model.records import LogReading, ReadingKind, combine
from perftool.readers.banner import BannerScanner
from perftool.readers.fallback_log import FallbackScanner
from perftool.readers.issue_tally import IssueTally
from perftool.readers.log_lines import LogLine, read_log_lines
from perftool.readers.runtime_log import RuntimeScanner
from perftool.readers.text_lines import Source


def scan(lines: Iterable[LogLine], tally: IssueTally) -> LogReading:
    """Everything log lines say, in one pass."""
    scanners = (FallbackScanner(tally), BannerScanner(tally), RuntimeScanner(tally))
    for line in lines:
        for scanner in scanners:
            scanner.feed(line)
    return combine(scanner.reading() for scanner in scanners)


def read(source: Source, rank: int | None = None) -> LogReading:
    """Everything one log says; ``rank`` is assumed where no line names one.

    The kind is ``fallback_log`` when the log holds nothing but fallbacks. Raises InputError when the file
    cannot be opened or read.
    """
    tally = IssueTally()
    reading = scan(read_log_lines(source, tally, rank), tally)
    only_fallbacks = bool(reading.fallbacks) and not (reading.events or reading.compilations or reading.config)
    kind: ReadingKind = "fallback_log" if only_fallbacks else "runtime_log"
    return combine((reading, LogReading(issues=tally.issues())), kind=kind)
