"""A log as people have it: fallback tables, banner and runtime lines of several ranks in one file."""

from __future__ import annotations

from perftool.model.records import LogReading, ReadingKind, combine
from perftool.readers.logs.banner import BannerScanner
from perftool.readers.logs.fallback_log import FallbackScanner
from perftool.readers.logs.runtime_log import RuntimeScanner
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import read_log_lines
from perftool.readers.text.text_lines import Source


def read(source: Source, rank: int | None = None) -> LogReading:
    """Everything one log says, in one pass; ``rank`` is assumed where no line names one.

    The kind is ``fallback_log`` when the log holds nothing but fallbacks. Raises InputError when the file
    cannot be opened or read.
    """
    tally = IssueTally()
    scanners = (FallbackScanner(tally), BannerScanner(tally), RuntimeScanner(tally))
    for line in read_log_lines(source, tally, rank):
        for scanner in scanners:
            scanner.feed(line)
    found = combine(scanner.reading() for scanner in scanners)
    only_fallbacks = bool(found.fallbacks) and not (found.events or found.compilations or found.config)
    kind: ReadingKind = "fallback_log" if only_fallbacks else "runtime_log"
    return combine((found, LogReading(issues=tally.issues())), kind=kind)
