"""A log as people have it: fallback tables, banner and runtime lines of several ranks in one file."""

from __future__ import annotations

from perftool.model.records import LogReading, ReadingKind, combine
from perftool.readers.logs import banner, fallback_log, runtime_log
from perftool.readers.logs.banner import BannerScanner
from perftool.readers.logs.fallback_log import FallbackScanner
from perftool.readers.logs.runtime_log import runtime_scanners
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import read_log_lines
from perftool.readers.text.text_lines import Source, Wanted, shortest

# What a line must hold to say something to anybody: colours may stand inside of a text.
_TEXTS = shortest((*fallback_log.CORES, *banner.TITLES, *runtime_log.CORES, "\x1b"))
# After a table its rows may stand anywhere.
_TEXTS_AND_ROWS = shortest((*_TEXTS, "::"))


def read(source: Source, rank: int | None = None, wanted: Wanted | None = None) -> LogReading:
    """Everything one log says, in one pass; ``rank`` is assumed where no line names one.

    ``wanted`` tells who reads the lines of ``source`` which of them are of use. The kind is ``fallback_log`` when the
    log holds nothing but fallbacks. Raises InputError when the file cannot be opened or read.
    """
    tally = IssueTally()
    fallbacks, settings = FallbackScanner(tally), BannerScanner(tally)
    scanners = (fallbacks, settings, *runtime_scanners(tally))
    feeds = [scanner.feed for scanner in scanners]
    wanted = wanted or Wanted()
    wanted.texts = _TEXTS
    for line in read_log_lines(source, tally, rank, wanted):
        for feed in feeds:
            feed(line)
        wanted.every = fallbacks.in_table or settings.in_banner
        wanted.texts = _TEXTS_AND_ROWS if fallbacks.had_table else _TEXTS
    found = combine(scanner.reading() for scanner in scanners)
    only_fallbacks = bool(found.fallbacks) and not (found.events or found.compilations or found.config)
    kind: ReadingKind = "fallback_log" if only_fallbacks else "runtime_log"
    return combine((found, LogReading(issues=tally.issues())), kind=kind)
