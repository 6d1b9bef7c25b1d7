"""Counts CPU executions of each op, when several files and lines report the same executions.

A table printed at exit, the metrics file, call lines and graph cuts count the same executions, so the counts of
different sources (one kind of record in one file) are compared, not added. Sources with ranks are compared rank by
rank, and their maxima are added; a source without ranks counts all ranks together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from perftool.model.records import FallbackOrigin, FallbackRecord, LogReading
from perftool.readers.text.log_time import time_of_day

# Records of these origins name the overload and count every execution; other origins count lines of one kind.
_COMPLETE: frozenset[FallbackOrigin] = frozenset({"table", "metrics"})


@dataclass(frozen=True, slots=True)
class FallbackTotal:
    """The total for one op over all inputs: ``count`` CPU executions, a lower bound when a process was killed.

    ``dtypes`` holds the argument types from call lines, one tuple per combination; ``ranks`` the ranks that
    executed the op, as far as known; ``origins`` the kinds of records that report it.
    """

    op: str
    base: str
    count: int
    ranks: tuple[int, ...]
    origins: tuple[FallbackOrigin, ...]
    dtypes: tuple[tuple[str, ...], ...] = ()


@dataclass
class _Evidence:
    """The counts of one op by source and rank; a source is the position of a file and an origin."""

    base: str
    counts: dict[tuple[int, FallbackOrigin], dict[int | None, int]] = field(default_factory=dict)
    dtypes: dict[tuple[str, ...], None] = field(default_factory=dict)

    def add(self, file: int, record: FallbackRecord) -> None:
        by_rank = self.counts.setdefault((file, record.origin), {})
        by_rank[record.rank] = by_rank.get(record.rank, 0) + record.count
        self.note_dtypes(record)

    def note_dtypes(self, record: FallbackRecord) -> None:
        if record.dtypes:
            self.dtypes.setdefault(record.dtypes)


def fallback_totals(readings: Sequence[LogReading]) -> tuple[FallbackTotal, ...]:
    """One total per op over all ``readings`` (one reading per file), most frequent first.

    Call lines name no overload. They are counted only if neither a table nor the metrics list the op; otherwise they
    only add argument types.
    """
    evidence: dict[str, _Evidence] = {}
    loose: list[tuple[int, FallbackRecord]] = []
    for file, record in _without_repeats(readings):
        if record.origin in _COMPLETE:
            evidence.setdefault(record.op, _Evidence(record.base)).add(file, record)
        else:
            loose.append((file, record))
    known = {entry.base for entry in evidence.values()}
    for file, record in loose:
        if record.base not in known:
            evidence.setdefault(record.op, _Evidence(record.base)).add(file, record)
            continue
        for entry in evidence.values():
            if entry.base == record.base:
                entry.counts.setdefault((file, record.origin), {})
                entry.note_dtypes(record)
    totals = (_total(op, entry) for op, entry in evidence.items())
    return tuple(sorted(totals, key=lambda total: (-total.count, total.op)))


def _without_repeats(readings: Iterable[LogReading]) -> Iterator[tuple[int, FallbackRecord]]:
    """The records, without tables that an earlier file also contains, as when the console shows a log file."""
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
        origins=tuple(sorted({origin for _, origin in entry.counts})),
        dtypes=tuple(entry.dtypes),
    )
