"""Reads a console log, which may contain fallback tables, banners and runtime lines of several ranks."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

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
_MOST_SERVERS = 16


def read(source: Source, rank: int | None = None, wanted: Wanted | None = None) -> LogReading:
    """Read a whole log in one pass. ``rank`` applies to lines without a rank.

    Keep ``wanted`` up to date, so that the reader of ``source`` can skip lines that are not needed. The kind is
    ``fallback_log`` if the log contains only fallbacks. Raise InputError if the file cannot be opened or read.
    """
    tally = IssueTally()
    fallbacks, settings = FallbackScanner(tally), BannerScanner(tally)
    events, compilations, progress = runtime_scanners(tally)
    results, server = ResultScanner(tally), _ServerScanner(tally, events)
    others = (fallbacks, settings, events, compilations, progress, server)
    feeds = [scanner.feed for scanner in others]
    wanted = wanted or Wanted()
    wanted.texts = _TEXTS
    for line in read_log_lines(source, tally, rank, wanted, client_result.is_result):
        own = _without_quoted(line)
        for feed in feeds:
            feed(own)
        results.feed(line if client_result.may_be_json(line.text) else own)
        wanted.every = fallbacks.in_table or settings.in_banner or results.in_result
        wanted.texts = _TEXTS_AND_ROWS if fallbacks.has_seen_table else _TEXTS
    found = combine(scanner.reading() for scanner in (*others, results))
    is_runtime = found.events or found.compilations or found.config or found.intervals or found.buckets
    only_fallbacks = bool(found.fallbacks) and not is_runtime
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


class _Server:
    """Collects what the server in a container logs about its settings and its load."""

    def __init__(self, tally: IssueTally) -> None:
        self.has_front_end = False
        self.load = IntervalScanner(tally)
        self.scanners = (BucketScanner(tally), self.load, SettingScanner())


class _ServerScanner:
    """Collects what the servers in a log say about their settings and their load. If a server starts several times,
    only the last start counts. The ``events`` of the server before it are forgotten.

    Only the label of a container distinguishes servers: a server that starts again has another pid.
    """

    def __init__(self, tally: IssueTally, events: EventScanner) -> None:
        self._tally, self._events = tally, events
        self._servers: dict[str, _Server] = {}

    def feed(self, line: LogLine) -> None:
        container = line.prefix.container
        # Each server has its own limits of statistics, so the number of servers limits memory use.
        if container not in self._servers and len(self._servers) >= _MOST_SERVERS:
            container = ""
        is_front_end = starts_server(line.text)
        # An engine that starts while its server runs joins the other engines.
        if is_front_end or (not self._server(container).has_front_end and starts_engine(line.text)):
            self._begin(container, line)
        server = self._server(container)
        server.has_front_end |= is_front_end
        for scanner in server.scanners:
            scanner.feed(line)

    def reading(self) -> LogReading:
        found = combine(scanner.reading() for server in self._servers.values() for scanner in server.scanners)
        return replace(found, intervals=tuple(sorted(found.intervals, key=attrgetter("line"))))

    def _server(self, container: str) -> _Server:
        if container not in self._servers:
            self._servers[container] = _Server(self._tally)
        return self._servers[container]

    def _begin(self, container: str, line: LogLine) -> None:
        # A start in an unknown container may be that of any server.
        before = [container] if container else list(self._servers)
        loads = [self._servers[name].load for name in before if name in self._servers]
        if any(load.has_load for load in loads):
            text = f"the server starts again in line {line.number}, and its load before that is not used"
            self._tally.note(UNUSED if any(load.has_served for load in loads) else OLDER_START, text)
            for name in before:
                del self._servers[name]
                self._events.forget(PREEMPTION, name)
