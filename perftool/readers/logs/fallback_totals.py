"""Counts the CPU executions of each op when several files and lines report the same executions.

A table printed at exit, the metrics file, call lines and graph cuts count the same executions. So the counts of
different sources (kinds of records in a file) are compared rather than added. Sources with ranks are compared rank by
rank, and the maxima are added; a source without ranks counts all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from perftool.model.records import FallbackOrigin, FallbackRecord, LogReading
from perftool.readers.text.log_time import time_of_day

# The longest list of an op's argument types, in characters. Each overload of the op repeats the list.
_LONGEST_LIST = 1000
# Records with these origins name the overload and count every execution. Records with other origins count lines.
_COMPLETE: frozenset[FallbackOrigin] = frozenset({"table", "metrics"})


@dataclass(frozen=True, slots=True)
class FallbackTotal:
    """The total for one op over all inputs. ``count`` is its number of CPU executions, or a lower bound if a process
    was killed.

    ``ranks``: the ranks that executed the op, as far as they are known. ``origins``: the kinds of records that report
    it. ``dtypes``: the argument types from call lines, one tuple per combination. ``more_dtypes``: the number of
    combinations that are left out.
    """

    op: str
    base: str
    count: int
    ranks: tuple[int, ...]
    origins: tuple[FallbackOrigin, ...]
    dtypes: tuple[tuple[str, ...], ...] = ()
    more_dtypes: int = 0


@dataclass
class _Calls:
    """The origins and argument types that call lines report for an op, or for all overloads of an op."""

    origins: set[FallbackOrigin] = field(default_factory=set)
    dtypes: dict[tuple[str, ...], None] = field(default_factory=dict)
    left_out: set[tuple[str, ...]] = field(default_factory=set)
    _length: int = 0

    def add(self, record: FallbackRecord) -> None:
        self.origins.add(record.origin)
        if not record.dtypes or record.dtypes in self.dtypes:
            return
        length = self._length + sum(len(dtype) + len(", ") for dtype in record.dtypes)
        if self.dtypes and length > _LONGEST_LIST:
            self.left_out.add(record.dtypes)
        else:
            self.dtypes[record.dtypes], self._length = None, length


@dataclass
class _Evidence:
    """The counts of one op by source and rank. A source is a file (by its position) and an origin."""

    base: str
    calls: _Calls
    counts: dict[tuple[int, FallbackOrigin], dict[int | None, int]] = field(default_factory=dict)

    def add(self, file: int, record: FallbackRecord) -> None:
        by_rank = self.counts.setdefault((file, record.origin), {})
        by_rank[record.rank] = by_rank.get(record.rank, 0) + record.count


def fallback_totals(readings: Sequence[LogReading]) -> tuple[FallbackTotal, ...]:
    """Return one total per op over all ``readings`` (one per file), most frequent first.

    Call lines do not name the overload. They are counted only if neither a table nor the metrics list the op;
    otherwise, they only add argument types.
    """
    evidence: dict[str, _Evidence] = {}
    loose: list[tuple[int, FallbackRecord]] = []
    # The call lines of ops that are also in a table or in the metrics. All overloads of an op count together.
    listed: dict[str, _Calls] = {}
    for file, record in _without_repeats(readings):
        if record.origin in _COMPLETE:
            calls = listed.setdefault(record.base, _Calls())
            evidence.setdefault(record.op, _Evidence(record.base, calls)).add(file, record)
        else:
            loose.append((file, record))
    for file, record in loose:
        if record.base in listed:
            listed[record.base].add(record)
        else:
            entry = evidence.setdefault(record.op, _Evidence(record.base, _Calls()))
            entry.add(file, record)
            entry.calls.add(record)
    totals = (_total(op, entry) for op, entry in evidence.items())
    return tuple(sorted(totals, key=lambda total: (-total.count, total.op)))


def _without_repeats(readings: Iterable[LogReading]) -> Iterator[tuple[int, FallbackRecord]]:
    """Yield the records, without tables that an earlier file also contains: console output may repeat a log file."""
    seen: dict[tuple[object, ...], int] = {}
    for file, reading in enumerate(readings):
        for record in reading.fallbacks:
            if record.origin == "table" and record.time_ns is not None and record.tid is not None:
                process = (time_of_day(record.time_ns), record.tid, record.op)
                if seen.setdefault(process, file) != file:
                    continue
            yield file, record


def _total(op: str, entry: _Evidence) -> FallbackTotal:
    ranked: dict[int, int] = {}
    unranked = 0
    for by_rank in entry.counts.values():
        unranked = max(unranked, sum(by_rank.values()) if None in by_rank else 0)
        for rank, count in by_rank.items():
            if rank is not None:
                ranked[rank] = max(ranked.get(rank, 0), count)
    return FallbackTotal(
        op=op,
        base=entry.base,
        count=max(unranked, sum(ranked.values())),
        ranks=tuple(sorted(ranked)),
        origins=tuple(sorted({origin for _, origin in entry.counts} | entry.calls.origins)),
        dtypes=tuple(entry.calls.dtypes),
        more_dtypes=len(entry.calls.left_out),
    )
