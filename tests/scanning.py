"""What one scanner of the log makes of a text; the program feeds all of them in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from perftool.model.records import LogReading, combine
from perftool.readers.banner import BannerScanner
from perftool.readers.fallback_log import FallbackScanner
from perftool.readers.issue_tally import IssueTally
from perftool.readers.log_lines import LogLine, read_log_lines
from perftool.readers.runtime_log import RuntimeScanner
from perftool.readers.text_lines import Source


class Scanner(Protocol):
    def feed(self, line: LogLine) -> None: ...

    def reading(self) -> LogReading: ...


def read_with(make: Callable[[IssueTally], Scanner], source: Source, rank: int | None = None) -> LogReading:
    """The records of the scanner that ``make`` gives, and the import issues."""
    tally = IssueTally()
    scanner = make(tally)
    for line in read_log_lines(source, tally, rank):
        scanner.feed(line)
    return combine((scanner.reading(), LogReading(issues=tally.issues())))


read_banner = partial(read_with, BannerScanner)
read_fallbacks = partial(read_with, FallbackScanner)
read_events = partial(read_with, RuntimeScanner)
