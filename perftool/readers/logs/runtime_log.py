"""Reads log lines about the recipe cache, graph cuts, recompilations, failures, start-up and progress."""

from __future__ import annotations

from dataclasses import dataclass, field

from perftool.model.records import LogEvent, LogReading
from perftool.readers.logs import compilation_lines, progress_bar
from perftool.readers.logs.bridge_patterns import BRIDGE_PATTERNS, LinePattern
from perftool.readers.logs.compilation_lines import CompilationScanner
from perftool.readers.logs.framework_patterns import FRAMEWORK_PATTERNS
from perftool.readers.logs.progress_bar import ProgressScanner
from perftool.readers.logs.serving_buckets import WARMUP
from perftool.readers.logs.serving_patterns import SERVING_PATTERNS
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine, own_words
from perftool.readers.text.short_texts import cached_for_short

_CORES = tuple((known.core, known) for known in (*BRIDGE_PATTERNS, *FRAMEWORK_PATTERNS))
_SERVING_CORES = tuple((known.core, known) for known in SERVING_PATTERNS)
CORES = (*(core for core, _ in (*_CORES, *_SERVING_CORES)), *compilation_lines.CORES, progress_bar.CORE)
_MAX_NAME = 200
# The common name of all graph cuts at CPU fallbacks. Their lines name the op, too, as the fallback records already do.
_CPU_FALLBACK = "cpu fallback"
# The kind, name, rank and container of an event.
_Key = tuple[str, str, int | None, str]


@dataclass
class _Seen:
    """Totals over the lines with the same kind, name, rank and container. ``value`` is the largest, because several
    processes may print the same line; ``limit`` comes from the same line."""

    pattern: LinePattern
    first: LogLine
    count: int = 0
    last_line: int = 0
    value: float | None = None
    limit: float | None = None


@dataclass
class EventScanner:
    """Combines known lines of a log, fed in order, into events."""

    tally: IssueTally
    _seen: dict[_Key, _Seen] = field(default_factory=dict)
    # The keys of ``_seen`` by kind and container. A log may have many restarts, and many kinds of lines that they do
    # not concern.
    _keys: dict[tuple[str, str], list[_Key]] = field(default_factory=dict)

    def feed(self, line: LogLine) -> None:
        """Process one line, which may match several patterns."""
        for known in _known_in(line.text):
            self._search(known, line)

    def reading(self) -> LogReading:
        """Return all events so far, in the order of their first lines."""
        return LogReading(events=tuple(_event(key, seen) for key, seen in self._seen.items()), kind="runtime_log")

    def _search(self, known: LinePattern, line: LogLine) -> None:
        match = known.pattern.search(line.text)
        if match is None:
            return
        groups = match.groupdict()
        value, limit = _number(groups.get("value")), _number(groups.get("limit"))
        if known.above_limit and (value is None or limit is None or value <= limit):
            return
        key = (known.kind, _name(known, groups.get("name")), line.rank, line.prefix.container)
        if key not in self._seen:
            if not self.tally.has_room(len(self._seen), "kinds of lines", line.number):
                return
            self._seen[key] = _Seen(known, line.without_text)
            self._keys.setdefault((known.kind, line.prefix.container), []).append(key)
        seen = self._seen[key]
        seen.count, seen.last_line = seen.count + 1, line.number
        if value is not None and (seen.value is None or value >= seen.value):
            seen.value, seen.limit = value, limit

    def forget(self, kind: str, container: str) -> None:
        """Leave out the events of ``kind`` in ``container`` so far."""
        for key in self._keys.pop((kind, container), ()):
            del self._seen[key]


# Cached, because most lines of a log differ only in their prefix.
@cached_for_short
def _known_in(text: str) -> tuple[LinePattern, ...]:
    # The shapes in a server's warm-up are not batch sizes of the run.
    if WARMUP in text:
        return ()
    own = own_words(text)
    known_lines = ((_CORES, text), (_SERVING_CORES, own))
    return tuple(known for cores, words in known_lines for core, known in cores if core in words)


def _name(known: LinePattern, captured: str | None) -> str:
    name = (captured or known.name)[:_MAX_NAME].strip()
    return _CPU_FALLBACK if known.kind == "graph_cut" and name.startswith(_CPU_FALLBACK) else name


def _number(text: str | None) -> float | None:
    return None if text is None else float(text.replace(",", ""))


def _event(key: _Key, seen: _Seen) -> LogEvent:
    kind, name, rank, _ = key
    return LogEvent(
        kind=kind,
        name=name,
        count=seen.count,
        value=seen.value,
        limit=seen.limit,
        unit=seen.pattern.unit,
        rank=rank,
        line=seen.first.number,
        last_line=seen.last_line,
        time_ns=seen.first.prefix.time_ns,
    )


def runtime_scanners(tally: IssueTally) -> tuple[EventScanner, CompilationScanner, ProgressScanner]:
    """Return the scanners for a runtime log: events, compilations, progress bars."""
    return EventScanner(tally), CompilationScanner(tally), ProgressScanner()
