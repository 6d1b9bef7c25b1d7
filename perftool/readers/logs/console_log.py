"""Reads a console log, which may contain fallback tables, banners and runtime lines of several ranks."""

from __future__ import annotations

from perftool.model.inputs import OLDER_START, UNUSED, ReadingKind
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
from perftool.readers.logs.runtime_log import EventScanner, runtime_scanners
from perftool.readers.logs.serving_buckets import BucketScanner
from perftool.readers.logs.serving_intervals import IntervalScanner
from perftool.readers.logs.serving_patterns import PREEMPTION, SettingScanner, starts_engine, starts_server
from perftool.readers.serving import client_result
from perftool.readers.serving.client_result import ResultScanner
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, own_words, read_log_lines
from perftool.readers.text.text_lines import Source, Wanted, shortest

# The scanners need only lines that contain one of these strings, or colour escapes, which may split such a string.
_SERVING = (*serving_buckets.CORES, *serving_intervals.CORES, *serving_patterns.CORES, *client_result.CORES)
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
    events, compilations, progress = runtime_scanners(tally)
    results, server = ResultScanner(tally), _ServerScanner(tally, events)
    scanners = (fallbacks, settings, events, compilations, progress, server, results)
    feeds = [scanner.feed for scanner in scanners]
    wanted = wanted or Wanted()
    wanted.texts = _TEXTS
    for line in read_log_lines(source, tally, rank, wanted):
        line = _without_quoted(line)
        for feed in feeds:
            feed(line)
        wanted.every = fallbacks.in_table or settings.in_banner or results.in_result
        wanted.texts = _TEXTS_AND_ROWS if fallbacks.has_seen_table else _TEXTS
    found = combine(scanner.reading() for scanner in scanners)
    others = found.events or found.compilations or found.config or found.intervals or found.buckets
    only_fallbacks = bool(found.fallbacks) and not others
    kind: ReadingKind = "fallback_log" if only_fallbacks else "runtime_log"
    return combine((found, LogReading(issues=tally.issues())), kind=kind)


def _without_quoted(line: LogLine) -> LogLine:
    """Return ``line`` without a client's text, which a server quotes when it logs a request. Known lines of servers
    quote settings.
    """
    if not line.prefix.of_server:
        return line
    own = own_words(line.text)
    return line if any(text in own for text in _SERVING) else line._replace(text=own)


class _ServerScanner:
    """Collects what a server logs about its settings and its load. If a log holds several starts of the server, only
    the last one counts. The ``events`` of the server before it are forgotten.
    """

    def __init__(self, tally: IssueTally, events: EventScanner) -> None:
        self._tally, self._events = tally, events
        self._begin()

    def _begin(self) -> None:
        self._events.forget(PREEMPTION)
        self._is_server = False
        self._load = IntervalScanner(self._tally)
        self._scanners = (BucketScanner(self._tally), self._load, SettingScanner())

    def feed(self, line: LogLine) -> None:
        is_server = starts_server(line.text)
        # An engine that starts while its server runs joins the other engines.
        is_start = is_server or (not self._is_server and starts_engine(line.text))
        if is_start and self._load.has_load:
            text = f"the server starts again in line {line.number}, and its load before that is not used"
            self._tally.note(UNUSED if self._load.has_served else OLDER_START, text)
            self._begin()
        self._is_server |= is_server
        for scanner in self._scanners:
            scanner.feed(line)

    def reading(self) -> LogReading:
        return combine(scanner.reading() for scanner in self._scanners)
