"""Reads the recordings of several ranks for a common timeline, on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perftool.engine.analysis import Run
from perftool.engine.drawing.annotate import annotate, attention
from perftool.model.annotations import Annotations, RankTimeline
from perftool.model.report import Location
from perftool.readers.text.nested_json import as_json

# The processes of a rank, in the order in which viewers show them.
_PROCESSES = """
WITH orders AS (
    SELECT pid, min(int_arg(args, 'sort_index')) AS place FROM raw
    WHERE rank = $rank AND ph = 'M' AND name = 'process_sort_index' GROUP BY pid
)
SELECT r.pid FROM (SELECT DISTINCT pid FROM raw WHERE rank = $rank AND ph <> 'M' AND pid <> '') AS r
LEFT JOIN orders AS o USING (pid) ORDER BY o.place NULLS LAST, r.pid
"""
_EVENTS = "SELECT ph, cat, name, pid, tid, ts, dur, id, args FROM raw WHERE rank = $rank ORDER BY rowid"

# The names (each once) and the arguments of events, as JSON.
_TEXTS = """
SELECT DISTINCT to_json(name)::VARCHAR AS text FROM raw WHERE rank = $rank AND name IS NOT NULL
UNION ALL SELECT args::VARCHAR FROM raw WHERE rank = $rank AND args IS NOT NULL
"""


def clock_offsets(run: Run) -> dict[int, int | None]:
    """Return the offset in ns to add to the times of each rank, or None if no collective links the rank to others."""
    run.store.build(["clocks"])
    known = {row["rank"]: row["offset_ns"] for row in run.store.select("SELECT rank, offset_ns FROM clocks")}
    return {rank: known.get(rank) for rank in _ranks(run)}


def rank_metadata(run: Run) -> Iterator[bytes]:
    """Yield the full metadata of each rank of ``run``, as JSON. Traces are read again, because a merged store contains
    only a few of the keys."""
    for rank in _ranks(run):
        with run.only_rank(rank) as store:
            yield as_json(store.metadata.get(rank))


def all_texts(run: Run) -> Iterator[bytes]:
    """Yield the metadata of ``run``, and the names and the arguments of all its events, as JSON."""
    for rank in _ranks(run):
        with run.only_rank(rank) as store:
            yield as_json(store.metadata.get(rank))
            yield from (text.encode("utf-8", "replace") for (text,) in store.iterate(_TEXTS, {"rank": rank}))


def _ranks(run: Run) -> list[int]:
    return sorted({read.rank for read in run.store.inputs if read.kind == "trace" and read.rank is not None})


def rank_timelines(run: Run) -> Iterator[RankTimeline]:
    """Yield the timeline of each rank of ``run``. Only one rank is in memory at a time, so read each timeline to its
    end before requesting the next."""
    for rank, offset_ns in clock_offsets(run).items():
        with run.only_rank(rank) as store:
            drawn = annotate(store, run.report, rank)
            processes = tuple(row["pid"] for row in store.select(_PROCESSES, {"rank": rank}))
            yield RankTimeline(rank, offset_ns, processes, store.iterate(_EVENTS, {"rank": rank}), drawn)


def first_view(run: Run) -> Annotations:
    """Return the initial view of the timeline of all ranks of ``run``, and the number of findings, without any
    lanes.
    """
    offsets, findings = clock_offsets(run), run.report.findings
    rows = run.store.select('SELECT rank, ts, "end" FROM windows')
    starts = [row["ts"] + (offsets.get(row["rank"]) or 0) for row in rows]
    ends = [row["end"] + (offsets.get(row["rank"]) or 0) for row in rows]
    window = Location(ts_ns=min(starts), dur_ns=max(ends) - min(starts)) if rows else Location(ts_ns=0, dur_ns=0)
    rank = findings[0].rank if findings else None
    view, select = attention(findings, window)
    offset = offsets.get(rank) or 0 if rank is not None else 0
    moved = select and replace(select, ts_ns=(select.ts_ns or 0) + offset)
    shown = view if view == window else replace(view, ts_ns=(view.ts_ns or 0) + offset)
    return Annotations(rank or 0, 0, len(findings), shown, moved, (), ())
