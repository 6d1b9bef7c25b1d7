"""Reads CPU fallbacks from logs: tables printed at exit, lines about individual calls, refusals, and graph cuts.

A table consists of a header, sometimes a hint, and rows with a count and an op. Only the header has the logger's
prefix. Every rank prints a table, so rows of several tables may be mixed. If a console log is appended to a log file,
the file contains the same table twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from perftool.model.records import FallbackOrigin, FallbackRecord, LogReading
from perftool.readers.text.issue_tally import IssueTally
from perftool.readers.text.log_lines import LogLine
from perftool.readers.text.log_time import time_of_day
from perftool.readers.text.op_names import dtype_name, op_name
from perftool.readers.text.short_texts import cached_for_short

HEADERS = ("CPU Fallback stats:", "Frequency of op and op name that were executed on CPU:")
# If one letter of a header is damaged, one of its halves is whole.
_HALVES = tuple(half for header in HEADERS for half in (header[: len(header) // 2], header[len(header) // 2 :]))
_HINT = re.compile(r"\s*\(Set env var \w+=\w+ to disable this print\)")
_ROW = re.compile(r"\s*(?P<count>\d{1,15})[ \t]+(?P<op>[^\s:]+::\S+)\s*$")
# A row in which one character is damaged: of the count, the colons, or the space between count and op. Another program
# may print a word before a name, as in "PASSED tests/test_a.py::test_b".
_DAMAGED_ROW = re.compile(
    r"\s*(?:(?:(?=[^\s:()\d]{0,14}\d)[^\s:()]{1,15}|[^\s:()])[ \t]+[^\s:/]+::\S+"
    r"|\d{1,15}[ \t]+[A-Za-z]\w*(?::[^\s:]|[^\s:]:)\S+"
    r"|\d{1,15}[^\s\w][^\s:]+::\S+)\s*$"
)
_ARGUMENT = re.compile(r"\b\w+=(\S+)")
# The maximum number of unrelated lines between two rows of a table.
_MAX_FOREIGN_LINES = 20
_MAX_OPEN = 256


@dataclass(frozen=True, slots=True)
class _LinePattern:
    """A kind of line that reports one execution on the CPU. ``core`` is a literal part of the line that is cheap to
    search for."""

    core: str
    pattern: re.Pattern[str]
    origin: FallbackOrigin


_LINES = (
    _LinePattern("CPU fallback ", re.compile(r"CPU fallback (?P<op>[\w:.]+) : ?(?P<detail>.{0,2000})"), "call"),
    _LinePattern(
        "Attribute check failed for",
        re.compile(r"Attribute check failed for:\s*(?P<op>[\w:.]{1,200}?)\s*(?P<detail>at argument.{0,2000})"),
        "refusal",
    ),
    _LinePattern(
        "step marker due to ",
        re.compile(r"step marker due to cpu fallback\s+(?P<op>[\w:.]+)(?P<detail>)"),
        "graph_cut",
    ),
)


@dataclass(frozen=True, slots=True)
class _ReportedCall:
    """One execution on the CPU that a line reports."""

    origin: FallbackOrigin
    op: str
    dtypes: tuple[str, ...]
    detail: str


# Cached, because the same op falls back in every step.
@cached_for_short
def _calls_in(text: str) -> tuple[_ReportedCall, ...]:
    found = []
    for known in _LINES:
        if known.core in text and (match := known.pattern.search(text)):
            detail = match["detail"].strip()
            dtypes = tuple(map(dtype_name, _ARGUMENT.findall(detail))) if known.origin == "call" else ()
            found.append(_ReportedCall(known.origin, match["op"], dtypes, detail))
    return tuple(found)


CORES = (*_HALVES, *(known.core for known in _LINES))


@dataclass(eq=False)
class _Table:
    """A table whose rows are being read. Up to ``left`` more unrelated lines may come before its next row."""

    header: LogLine
    rows: dict[str, int] = field(default_factory=dict)
    left: int = _MAX_FOREIGN_LINES

    def add(self, op: str, count: int) -> None:
        self.rows[op] = self.rows.get(op, 0) + count
        self.left = _MAX_FOREIGN_LINES

    def identities(self) -> Iterator[tuple[object, ...]]:
        """Yield keys by which a repeated table is recognised: its content, with its process or its rank."""
        content = frozenset(self.rows.items())
        prefix = self.header.prefix
        if prefix.time_ns is not None and prefix.tid is not None:
            yield "process", time_of_day(prefix.time_ns), prefix.tid, content
        if self.header.rank is not None:
            yield "rank", self.header.rank, content


@dataclass
class _Call:
    """The call lines with the same op, rank and argument types."""

    first: LogLine
    detail: str
    count: int = 0


class FallbackScanner:
    """Collects fallbacks from the lines of a log, fed in order."""

    def __init__(self, tally: IssueTally) -> None:
        self._tally = tally
        self._tables: list[_Table] = []
        self._open: list[_Table] = []
        self._is_header_damaged = False
        # The number of rows in all tables.
        self._rows = 0
        self._calls: dict[tuple[FallbackOrigin, str, tuple[str, ...], int | None], _Call] = {}

    def feed(self, line: LogLine) -> None:
        """Keep the row of a fallback table or the calls that ``line`` reports, if any."""
        text = line.text
        if HEADERS[0] in text or HEADERS[1] in text:
            table = _Table(line.without_text)
            self._open = [*self._open[-_MAX_OPEN:], table]
            self._tables.append(table)
        elif "::" in text and (row := _ROW.match(text)):
            self._row(line, row)
        elif any(half in text for half in _HALVES):
            self._is_header_damaged = True
        elif self._open and not line.prefix.is_logger and text.strip() and not _HINT.match(text):
            if _DAMAGED_ROW.match(text):
                self._tally.note("bad row", "a row of a fallback table is damaged and is left out", line.number)
            self._foreign(line.prefix.rank)
        for call in _calls_in(text):
            self._call(line, call)

    @property
    def in_table(self) -> bool:
        """Whether the next line may belong to a table."""
        return bool(self._open)

    @property
    def has_seen_table(self) -> bool:
        """Whether a table header has been read, even if it is damaged. Rows may occur anywhere after it."""
        return self._is_header_damaged or bool(self._tables)

    def reading(self) -> LogReading:
        """Return all records read so far, with call lines summed by op, argument types and rank."""
        return LogReading(fallbacks=(*self._table_records(), *self._call_records()), kind="fallback_log")

    def _row(self, line: LogLine, row: re.Match[str]) -> None:
        tables = self._open_tables(line.prefix.rank)
        if not tables:
            if self.has_seen_table:
                self._tally.note("row without table", "a fallback row is separate from its table", line.number)
            return
        if not line.ended:
            self._tally.note("cut line", "the last row of a fallback table has no line ending", line.number)
        # A process lists each op once, so a second row for an op is from another process.
        table = next((table for table in tables if row["op"] not in table.rows), tables[0])
        if row["op"] not in table.rows:
            if not self._tally.has_room(self._rows, "rows of fallback tables", line.number):
                return
            self._rows += 1
        table.add(row["op"], int(row["count"]))

    def _open_tables(self, label: int | None) -> list[_Table]:
        """Return the open tables that a line with this launcher label may belong to, newest first.

        A line without a label may belong to any table, because only headers have the logger's prefix.
        """
        return [table for table in reversed(self._open) if label is None or table.header.rank == label]

    def _foreign(self, label: int | None) -> None:
        for table in self._open_tables(label):
            table.left -= 1
            if table.left < 0:
                self._open.remove(table)

    def _call(self, line: LogLine, call: _ReportedCall) -> None:
        key = (call.origin, call.op, call.dtypes, line.rank)
        if key not in self._calls and not self._tally.has_room(len(self._calls), "kinds of fallbacks", line.number):
            return
        self._calls.setdefault(key, _Call(line.without_text, call.detail)).count += 1

    def _table_records(self) -> Iterator[FallbackRecord]:
        seen: set[tuple[object, ...]] = set()
        for number, table in enumerate(self._tables):
            identities = set(table.identities())
            if table.rows and identities & seen:
                self._tally.note("duplicate table", "a fallback table is printed twice", table.header.number)
                continue
            seen |= identities
            for op, count in table.rows.items():
                yield _table_record(table.header, number, op, count)

    def _call_records(self) -> Iterator[FallbackRecord]:
        for (origin, op, dtypes, rank), call in self._calls.items():
            name = op_name(op)
            yield FallbackRecord(
                op=name.full,
                base=name.base,
                count=call.count,
                origin=origin,
                rank=rank,
                dtypes=dtypes,
                detail=call.detail,
                line=call.first.number,
                time_ns=call.first.prefix.time_ns,
                tid=call.first.prefix.tid,
            )


def _table_record(header: LogLine, number: int, op: str, count: int) -> FallbackRecord:
    name = op_name(op)
    return FallbackRecord(
        op=name.full,
        base=name.base,
        count=count,
        origin="table",
        rank=header.rank,
        table=number,
        line=header.number,
        time_ns=header.prefix.time_ns,
        tid=header.prefix.tid,
    )
