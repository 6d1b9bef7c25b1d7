"""Reads a console log, which may contain fallback tables, banners and runtime lines of several ranks."""

from __future__ import annotations

from perftool.model.inputs import ReadingKind
from perftool.model.records import LogReading, combine
from perftool.readers.logs import (
    banner,
    fallback_log,
    runtime_log,
    serving_buckets,
    serving_intervals,
    serving_patterns,
)
from perftool.readers.logs.banner import BannerScanner
from perftool.readers.logs.fallback_log import FallbackScanner
from perftool.readers.logs.runtime_log import runtime_scanners
from perftool.readers.logs.serving_buckets import BucketScanner
from perftool.readers.logs.serving_intervals import IntervalScanner
from perftool.readers.logs.serving_patterns import SettingScanner
from perftool.readers.serving import client_result
from perftool.readers.serving.client_result import ResultScanner
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import read_log_lines
from perftool.readers.text.text_lines import Source, Wanted, shortest

# The scanners need only lines that contain one of these texts, or colour escapes, which may split such a text.
_SERVING = (*serving_buckets.CORES, *serving_intervals.CORES, *serving_patterns.CORES, client_result.TITLE)
_TEXTS = shortest((*fallback_log.CORES, *banner.TITLES, *runtime_log.CORES, *_SERVING, "\x1b"))
# The rows of a fallback table contain "::", and may occur anywhere after its header.
_TEXTS_AND_ROWS = shortest((*_TEXTS, "::"))


def read(source: Source, rank: int | None = None, wanted: Wanted | None = None) -> LogReading:
    """Read a whole log in one pass. ``rank`` applies to lines without a rank.

    Keep ``wanted`` up to date, so that the reader of ``source`` can skip lines that are not needed. The kind is
    ``fallback_log`` if the log contains only fallbacks. Raise InputError if the file cannot be opened or read.
    """
    tally = IssueTally()
    fallbacks, settings = FallbackScanner(tally), BannerScanner(tally)
    results = ResultScanner(tally)
    serving = (BucketScanner(tally), IntervalScanner(tally), SettingScanner(), results)
    scanners = (fallbacks, settings, *runtime_scanners(tally), *serving)
    feeds = [scanner.feed for scanner in scanners]
    wanted = wanted or Wanted()
    wanted.texts = _TEXTS
    for line in read_log_lines(source, tally, rank, wanted):
        for feed in feeds:
            feed(line)
        wanted.every = fallbacks.in_table or settings.in_banner or results.in_result
        wanted.texts = _TEXTS_AND_ROWS if fallbacks.has_seen_table else _TEXTS
    found = combine(scanner.reading() for scanner in scanners)
    others = found.events or found.compilations or found.config or found.intervals or found.buckets
    only_fallbacks = bool(found.fallbacks) and not others
    kind: ReadingKind = "fallback_log" if only_fallbacks else "runtime_log"
    return combine((found, LogReading(issues=tally.issues())), kind=kind)
