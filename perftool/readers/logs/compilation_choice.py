"""Chooses among several logs and metrics files of one run that report the same compilations.

The metrics file, running totals, recipe-cache lines and other sources report the same compilations, with different
details and gaps. For example, metrics do not include compilations in eager mode, and log lines depend on the log level.
So counts are compared rather than added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftool.model.records import CompilationRecord, CompilationSource, LogReading

# If counts are equal, the more detailed source wins. Times count most, then steps, then recipes.
_PREFERENCE: tuple[CompilationSource, ...] = (
    "metrics",
    "print_stats",
    "compilation_stats",
    "detect_recompilation",
    "recipe_cache",
)


@dataclass(frozen=True, slots=True)
class _SourceRecords:
    """The records of one source and rank from all files, because compilation statistics have one file per graph."""

    source: CompilationSource
    rank: int | None
    records: tuple[CompilationRecord, ...]

    @property
    def strength(self) -> tuple[int, int]:
        return sum(record.count for record in self.records), -_PREFERENCE.index(self.source)


def chosen_compilations(readings: Sequence[LogReading]) -> tuple[CompilationRecord, ...]:
    """For each rank, choose the records of the source with the most compilations. All readings must come from one run.

    If a source without ranks has more compilations than these records together, it is chosen instead.
    """
    best: dict[int | None, _SourceRecords] = {}
    for witness in _source_records(readings):
        present = best.get(witness.rank)
        if present is None or witness.strength > present.strength:
            best[witness.rank] = witness
    unranked = best.pop(None, None)
    ranked = tuple(record for rank in sorted(best, key=_rank) for record in best[rank].records)
    if unranked is None or unranked.strength[0] <= sum(record.count for record in ranked):
        return ranked
    return unranked.records


def _rank(rank: int | None) -> int:
    return -1 if rank is None else rank


def _source_records(readings: Sequence[LogReading]) -> list[_SourceRecords]:
    groups: dict[tuple[CompilationSource, int | None], list[CompilationRecord]] = {}
    for reading in readings:
        for record in reading.compilations:
            groups.setdefault((record.source, record.rank), []).append(record)
    return [_SourceRecords(source, rank, tuple(records)) for (source, rank), records in groups.items()]
