"""Strips the prefixes of loggers and launchers from log lines, and keeps what the prefixes say.

A line may begin with colours, the label of a launcher (Open MPI ``[1,0]<stdout>:``,
torchrun ``[default0]:``, ``rank0: `` ...) and the groups of the Gaudi logger:
``[20:57:12.104233][PT_FALLBACK        ][critical][tid:398E] ``. vLLM's logger writes
``(EngineCore_DP0 pid=123) INFO 11-23 14:08:20 [core.py:133] ``; before version 0.9, it wrote neither the parentheses
nor the opening bracket. SGLang's writes ``[2026-11-23 14:08:20 TP0] ``. A line may also be a member of a JSON record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.json_lines import JsonLines
from perftool.readers.text.log_time import parse_time, parse_time_of_day
from perftool.readers.text.text_lines import MAX_LINE, Source, Wanted, read_lines


class Prefix(NamedTuple):
    """The contents of a line's prefix. ``tid`` is hexadecimal, as printed; ``level`` is in lower case. ``of_server``:
    whether the logger of vLLM or SGLang wrote the line. ``process`` are the labels that distinguish the processes of
    servers, and ``container`` is the one that stays when a server starts again; both are empty for other lines."""

    rank: int | None = None
    time_ns: int | None = None
    level: str | None = None
    logger: str | None = None
    tid: str | None = None
    of_server: bool = False
    process: str = ""
    container: str = ""

    @property
    def is_logger(self) -> bool:
        """Whether the line comes from a logger rather than from a plain print under a launcher."""
        return self.time_ns is not None or self.logger is not None or self.tid is not None


NO_PREFIX = Prefix()


class LogLine(NamedTuple):
    """One line. ``text`` is the text after the prefix; ``rank`` comes from the line or, failing that, from the file."""

    number: int
    text: str
    rank: int | None = None
    prefix: Prefix = NO_PREFIX
    ended: bool = True

    @property
    def without_text(self) -> LogLine:
        """The line without its text, which may be a megabyte long. Readers keep such lines while they read the rest of
        the log."""
        return self._replace(text="")


def read_log_lines(
    source: Source,
    tally: IssueTally,
    rank: int | None = None,
    wanted: Wanted | None = None,
    is_other: Callable[[Iterable[str]], bool] = lambda _: False,
) -> Iterator[LogLine]:
    """Yield the ``wanted`` lines of a log. ``rank`` applies to lines without a rank. A JSON object whose keys are
    ``is_other`` is a line of its own, not the record of a line. Raise the errors of read_lines."""
    wanted, records = wanted or Wanted(), JsonLines(tally, is_other)
    for line in read_lines(source, tally, wanted=wanted):
        if len(line.text) > MAX_LINE:
            tally.note("long line", f"a line is longer than {MAX_LINE} characters; the rest is ignored", line.number)
        text = records.line_in(line.text[:MAX_LINE])
        if text is not None:
            prefix, text = split_prefix(text)
            yield LogLine(line.number, text, rank if prefix.rank is None else prefix.rank, prefix, line.ended)
        # Only the previous record shows whether a record is the rest of a line.
        wanted.every |= records.is_record


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def strip_ansi(text: str) -> str:
    """Return ``text`` without colour and cursor escapes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def split_prefix(line: str) -> tuple[Prefix, str]:
    """Separate the prefixes of launchers and the logger from the message."""
    line = text = strip_ansi(line)
    prefix = NO_PREFIX
    if (timed := _TIMED.match(text)) and "<std" not in text:
        # Fast path for a line from a logger without a label.
        behind, rest = _after_time(timed[3])
        if not rest and behind.time_ns == 0:
            time_ns = parse_time_of_day(timed[1], timed[2])
            known = Prefix(behind.rank, time_ns, behind.level, behind.logger, behind.tid)
            prefix, text = _logger_groups(known, text[timed.end() :])
            return prefix, _without_source_line(text)
    # A line may have labels of the container runtime, the launcher and the logger in succession.
    for _ in range(_MAX_LABELS):
        label = _LABEL.match(text)
        if label is None:
            break
        if label.lastgroup is not None:
            prefix = prefix._replace(rank=int(label[label.lastgroup]))
        text = text[label.end() :]
    if text.lstrip().startswith("["):
        prefix, text = _logger_groups(prefix, text)
    if not prefix.is_logger and (server := _SERVER.search(own_words(text[:_LONGEST_LEAD]))):
        level = server["level"]
        prefix = prefix._replace(
            time_ns=parse_time(server["time"] or server["date"]), level=level.lower() if level else None, of_server=True
        )
        # A label of an unknown launcher may precede the prefix. A progress bar is part of the text.
        text = text[server.end() :] if _BAR not in text[: server.start()] else text
    if prefix.is_logger:
        text = _without_source_line(text)
    if prefix.of_server:
        lead = line[: min(len(line) - len(text), _LONGEST_LEAD)]
        container = _CONTAINER.match(lead)
        prefix = prefix._replace(
            process=" ".join(_PROCESS.findall(lead)), container=container["name"] if container else ""
        )
    return prefix, text


def own_words(message: str) -> str:
    """Return the part of ``message`` that the program itself wrote. A user's text follows the first quotation mark; the
    name that a client gave its request follows the word "request"."""
    quoted = _QUOTED.search(message)
    return message[: quoted.start()] if quoted else message


def is_wrapped(message: str) -> bool:
    """Whether ``message`` is a record in which a logger quotes the program's own line, as in JSON or ``msg="..."``."""
    quote = _ANY_QUOTE.search(message)
    return (
        quote is not None
        and quote.start() <= len(own_words(message))
        and _BEFORE_OWN.search(message, max(quote.start() - _LONGEST_LEAD, 0), quote.start()) is not None
    )


class Beginning:
    """Matches lines that begin with a pattern. Only what loggers and launchers write may precede it."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def match(self, text: str) -> re.Match[str] | None:
        """Return the match in the line ``text``, or None if it begins otherwise.

        Each word is matched once, so the time is linear: a single pattern would try all ways to match the words.
        """
        at = len(text) - len(text.lstrip())
        for _ in range(_MOST_LEADING + 1):
            if found := self._pattern.match(text, at):
                return found
            if (word := _LEADING.match(text, at)) is None:
                return None
            at = word.end()
        return None


# Quotation marks around just one word enclose a name, and a mark after two or more letters is an apostrophe or closes a
# quotation: neither begins a user's text. A mark after one letter, as in b'...', does.
_QUOTED = re.compile(r"(?<!\w\w)(?P<mark>['\"`])(?!\w+(?P=mark))|\b(?:[Rr]equest|[Rr]esponse)\b")
_ANY_QUOTE = re.compile(r"['\"`]")
# What precedes the first quotation mark of a record.
_BEFORE_OWN = re.compile(r"(?:^\s*b?|\{\s*|^\w+=|\b(?:log|msg|message)=)$")
# A word of a prefix that split_prefix does not know: a level, a separator, a name before a bar, a name with dots, or
# anything with digits or brackets (time, rank, process).
_LEADING = re.compile(
    r"(?:(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL):?|[-|]|[\w.-]+(?=\s+\|\s)|\w+(?:\.\w+)+"
    r"|(?=[^\s'\"`]*[\d\[\]()])[^\s'\"`]{1,100})\s+"
)
_MOST_LEADING = 8
_LONGEST_LEAD = 400
_BAR = "%|"


def _without_source_line(text: str) -> str:
    place = _SOURCE_LINE.match(text)
    return text[place.end() :] if place else text


_MAX_LABELS = 4
_BARE_LABEL_BEFORE = r"(?=\[\d\d:\d\d|\s*\d+[ \t]+[^\s:]+::\S+\s*$|CPU [Ff]allback|Frequency of op)"
# An ambiguous label is recognised only before known text.
_LABELS = (
    r"\s*\[\d+,(?P<rank>\d{1,6})\]\s?<std(?:out|err)>:[ ]?",  # mpirun --tag-output
    r"\s*\[?rank[ :]?(?P<rank>\d{1,6})\]?:[ \t]?",  # torch, user scripts
    r"\s*\[[a-z_]+(?P<rank>\d{1,6})\]:[ \t]?",  # torchrun: role and local rank
    r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?",  # containers
    r"[\x20-\x7e]{10,32}\d{4}(?=\[\d+,\d+\]<std)",  # mpirun --timestamp-output
    r"\([\w-]* ?(?:rank=(?P<rank>\d{1,6}) )?pid=\d+(?:, ip=[\w.:]+)?\) ?",  # Ray, vLLM
    r" *(?P<rank>\d{1,6}): " + _BARE_LABEL_BEFORE,  # srun --label
    r"[A-Za-z0-9][\w.-]*: " + _BARE_LABEL_BEFORE,  # pdsh, used by DeepSpeed: host name
)
# One alternation is several times faster than separate patterns; at most one rank group matches.
_LABEL = re.compile("|".join(label.replace("?P<rank>", f"?P<rank{i}>") for i, label in enumerate(_LABELS)))
_GROUP = re.compile(r"\s*\[([^\[\]]{1,64})\]")
# The logger writes at most five groups.
_MAX_GROUPS = 16
# What SGLang's logger writes between its brackets: the time, and the ranks of the process (DP0 TP0 ...).
_SGLANG = r"(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: [A-Z_]{2,12}\d{1,4}){0,6}"
_SERVER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d) "
    rf"(?:\[?[\w./-]{{1,120}}:\d{{1,6}}\] ?)?|\[{_SGLANG}\] ?"
)
# The label of the container (docker compose, kubectl).
_CONTAINER = re.compile(r"(?:\[(?=pod/))?(?P<name>[\w.@-]+(?= +\| )|pod/[^\]\s]+(?=\]))")
# Labels of the container, the process (vLLM, journald) and the data-parallel rank (SGLang).
_PROCESS = re.compile(
    r"^[\w.@-]+(?= +\| )|(?<=^\[)pod/[^\]\s]+(?=\])|pid=\d+|(?<=\w)\[\d+\](?=: )|(?<=\d )DP\d+(?=[ \]])"
)
_SOURCE_LINE = re.compile(r"^\s*[\w./-]+\.(?:cpp|cc|h|hpp):\d+[:\t ]\s*")


@dataclass(frozen=True, slots=True)
class _Group:
    """A kind of bracketed group: its pattern, and the fields that it sets."""

    pattern: re.Pattern[str]
    sets: Callable[[Prefix, str], Prefix]


_GROUPS = tuple(
    _Group(re.compile(pattern), sets)
    for pattern, sets in (
        (
            r"([\d -]{0,12}[ T]?\d\d:\d\d:\d\d(?:\.|::)\d+)$",
            lambda p, text: p._replace(time_ns=parse_time(text)),
        ),
        (
            rf"{_SGLANG}$",
            lambda p, text: p._replace(time_ns=parse_time(text), of_server=True),
        ),
        (
            r"(?i)(trace|debug|info|warn|warning|error|critical|[tdiwec])\s*$",
            lambda p, text: p._replace(level=text.lower()),
        ),
        (r"[Rr]ank:\s*(\d{1,6})$", lambda p, text: p._replace(rank=int(text))),
        (r"R0*(\d{1,6})$", lambda p, text: p._replace(rank=int(text))),
        (r"tid:\s*([0-9A-Fa-f]+)$", lambda p, text: p._replace(tid=text.upper())),
        (r"((?:pid|hls|C):.*)$", lambda p, text: p),
        (r"(PT_[A-Z_]+)\s*$", lambda p, text: p._replace(logger=text)),
    )
)
# Other names in brackets are loggers only right after the time. Elsewhere, they belong to the message, as [CACHEFILE]
# does.
_ANY_LOGGER = re.compile(r"([A-Z][A-Z0-9_]+)\s*$")
_OLD_TID = re.compile(r"([0-9A-Fa-f]+)$")


_TIMED = re.compile(r"\[(\d\d:\d\d:\d\d)\.(\d+)\]((?:\[[^\[\]]{1,64}\]){1,16})")


@lru_cache(maxsize=4096)
def _after_time(groups: str) -> tuple[Prefix, str]:
    """Parse the ``groups`` that follow a time. Return their contents (with time 0), and the rest, which is part of the
    message."""
    return _logger_groups(Prefix(time_ns=0), groups)


def _logger_groups(prefix: Prefix, text: str) -> tuple[Prefix, str]:
    at = 0
    for _ in range(_MAX_GROUPS):
        if not (group := _GROUP.match(text, at)) or (known := _apply(prefix, group[1])) is None:
            break
        prefix, at = known, group.end()
    text = text[at:]
    return prefix, text.lstrip() if prefix.is_logger else text


def _apply(prefix: Prefix, content: str) -> Prefix | None:
    """Add the content of one group to ``prefix``. Return None if the group belongs to the message."""
    for group in _GROUPS:
        if match := group.pattern.match(content):
            return group.sets(prefix, match[1])
    if prefix.time_ns is not None and prefix.logger is None and (match := _ANY_LOGGER.match(content)):
        return prefix._replace(logger=match[1])
    if (
        prefix.time_ns is not None
        and prefix.logger is None
        and prefix.tid is None
        and (match := _OLD_TID.match(content))
    ):
        return prefix._replace(tid=match[1].upper())
    return None
