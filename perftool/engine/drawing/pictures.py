"""Builds the charts of a report from the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perftool.engine.drawing.heat_maps import heat_maps
from perftool.engine.drawing.lanes import View, capped, lanes_in
from perftool.engine.drawing.path import path_timeline
from perftool.engine.report.across_ranks import grouped
from perftool.engine.report.overview import median
from perftool.model.memory import memory_place
from perftool.model.pictures import MemoryCurve, MemorySteps, Pictures, RankTimes, Strip, Timeline
from perftool.model.report import BREAKDOWN, Finding, Report, Step
from perftool.store.trace_store import TraceStore

# Limits on the number of items. The longest or most important ones are drawn, and the page says what is omitted.
MOST_TIMELINES = 12
MOST_BARS = 240
MOST_STRIPS = 8
MOST_CURVES = 8
_BINS = 240
_SAMPLES = 300
# The maximum number of columns in a chart over steps.
_MOST_STEPS = 120
# The margin on each side of the marked stretch, as a share of its length.
_MARGIN = 0.6
# A short stretch gets a wider margin to show its surroundings: _LEAST_MARGIN of a step, but at most _MOST_MARGIN times
# its own length.
_MOST_MARGIN = 3
_LEAST_MARGIN = 0.01


@dataclass(frozen=True)
class PlannedTimeline:
    """A timeline to draw: the view, and the names of the marked stretch and of the step around it."""

    view: View
    name: str | None
    step: str | None


@dataclass(frozen=True)
class Wanted:
    """The charts to draw: timelines by index of the finding, and the ranks with a strip, memory curves or a critical
    path."""

    timelines: Mapping[int, PlannedTimeline]
    strips: tuple[int, ...]
    memory: tuple[int, ...]
    path: int | None = None

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks whose events are needed to draw the charts."""
        paths = () if self.path is None else (self.path,)
        return frozenset((*self.strips, *self.memory, *paths, *(wish.view.rank for wish in self.timelines.values())))


@dataclass(frozen=True)
class Taken:
    """The charts of some ranks."""

    timelines: Mapping[int, Timeline]
    strips: tuple[Strip, ...]
    memory: tuple[MemoryCurve, ...]
    path: Timeline | None = None
    memory_steps: tuple[MemorySteps, ...] = ()


def pictures_of(store: TraceStore, report: Report) -> Pictures:
    """Draw the charts of ``report`` from a store with all events of its ranks."""
    return merge_pictures(store, report, [take_pictures(store, choose_pictures(store, report))])


def choose_pictures(store: TraceStore, report: Report) -> Wanted:
    """Choose the charts to draw for ``report``, from the tables of ``store``."""
    store.build(["_rank_totals"])
    ranks = store.select("SELECT rank, device FROM _rank_totals ORDER BY rank")
    return Wanted(
        timelines=_planned_timelines(report),
        strips=tuple(row["rank"] for row in ranks if row["device"])[:MOST_STRIPS],
        memory=tuple(row["rank"] for row in ranks)[:MOST_CURVES],
        path=report.model.rank if report.model and report.model.bounds else None,
    )


def take_pictures(store: TraceStore, wanted: Wanted) -> Taken:
    """Draw the ``wanted`` charts of the ranks in ``store`` from its events."""
    own = {number: wish for number, wish in wanted.timelines.items() if wish.view.rank in store.metadata}
    drawn = {number: _timeline(store, wish) for number, wish in own.items()}
    return Taken(
        {number: timeline for number, timeline in drawn.items() if timeline},
        _strips(store, wanted.strips),
        _memory(store, wanted.memory),
        None if wanted.path not in store.metadata else path_timeline(store, wanted.path, MOST_BARS),
        _memory_steps(store, wanted.memory),
    )


def merge_pictures(store: TraceStore, report: Report, parts: Sequence[Taken]) -> Pictures:
    """Merge the charts of all ranks into the charts of ``report``."""
    timelines = {number: timeline for part in parts for number, timeline in part.timelines.items()}
    return Pictures(
        dict(sorted(timelines.items())),
        tuple(sorted((strip for part in parts for strip in part.strips), key=lambda strip: strip.rank)),
        tuple(sorted((curve for part in parts for curve in part.memory), key=lambda curve: curve.rank))[:MOST_CURVES],
        _ranks(store, report.steps),
        path=next((part.path for part in parts if part.path), None),
        heat=heat_maps(store),
        memory_steps=tuple(
            sorted((drawn for part in parts for drawn in part.memory_steps), key=lambda drawn: drawn.rank)
        ),
    )


def _planned_timelines(report: Report) -> dict[int, PlannedTimeline]:
    """Return the timelines to draw, by index of the finding. A finding that occurs on several ranks is drawn only for
    the first."""
    wishes: dict[int, PlannedTimeline] = {}
    for number, *_ in grouped(report.findings):
        finding = report.findings[number]
        place = _place_of(finding)
        if place is not None and len(wishes) < MOST_TIMELINES:
            wishes[number] = _planned_timeline(report.steps, finding.rank or 0, place)
    return wishes


@dataclass(frozen=True)
class _Place:
    """A stretch of time to show, in ns."""

    ts: int
    dur: int
    name: str | None


def _place_of(finding: Finding) -> _Place | None:
    """Return the stretch to show for a finding: its own location, or the first related one with a duration."""
    for place in (finding.location, *finding.related):
        if place.ts_ns is not None and place.dur_ns:
            same = [near.name for near in finding.related if (near.ts_ns, near.dur_ns) == (place.ts_ns, place.dur_ns)]
            return _Place(place.ts_ns, place.dur_ns, next(iter(same), None))
    return None


def _planned_timeline(steps: Sequence[Step], rank: int, place: _Place) -> PlannedTimeline:
    end = place.ts + place.dur
    own = [step for step in steps if step.rank == rank]
    around = next((step for step in own if step.ts_ns <= place.ts < step.ts_ns + step.dur_ns), None)
    some = min(_LEAST_MARGIN * median([step.dur_ns for step in own]), _MOST_MARGIN * place.dur)
    margin = int(max(_MARGIN * place.dur, some, 1))
    view = View(rank, place.ts - margin, end + margin, place.ts, end)
    return PlannedTimeline(view, place.name, around.name if around else None)


def _timeline(store: TraceStore, wish: PlannedTimeline) -> Timeline | None:
    view = wish.view
    lanes = lanes_in(store, view)
    if not lanes:
        return None
    kept, left_out = capped(lanes, MOST_BARS)
    return Timeline(
        view.rank, view.begin, view.until - view.begin, view.mark, view.mark_end - view.mark, wish.name, wish.step,
        kept, left_out,
    )  # fmt: skip


# The device's states in each bin of the window, as indices into $kinds. DuckDB 2.0 fails on millions of rows of text.
_STRIP = """
WITH bins AS (
    SELECT rank, ts AS begin, greatest(("end" - ts) / $bins, 1) AS width FROM windows
    WHERE rank IN (SELECT unnest($ranks)) AND rank IN (SELECT rank FROM device_ops WHERE valid)
),
doing AS (
    SELECT t.rank, t.ts, t."end", list_position($kinds, s.device) - 1 AS kind
    FROM _timeline AS t JOIN windows AS w ON w.rank = t.rank AND t.ts >= w.ts AND t."end" <= w."end"
    JOIN _mask_meanings AS s USING (mask) WHERE s.device IS NOT NULL
    UNION ALL SELECT rank, ts, "end", list_position($kinds, 'idle:' || cause) - 1 FROM gap_causes
),
placed AS (
    SELECT d.rank, d.kind, d.ts, d."end", b.begin, b.width, floor((d.ts - b.begin) / b.width)::BIGINT AS first_bin,
           least(floor((d."end" - 1 - b.begin) / b.width)::BIGINT, $bins - 1) AS last_bin
    FROM doing AS d JOIN bins AS b ON b.rank = d.rank WHERE d."end" > d.ts
),
pieces AS (
    SELECT rank, kind, ts, "end", begin, width, unnest(range(first_bin, last_bin + 1)) AS bin FROM placed
)
SELECT rank, begin, width, kind, bin,
       sum((least("end", begin + (bin + 1) * width) - greatest(ts, begin + bin * width)) / width) AS share
FROM pieces GROUP BY rank, begin, width, kind, bin ORDER BY rank, kind, bin
"""
_BUSY_KINDS = ("kernel", "communication", "memcpy", "memset")


def _strips(store: TraceStore, ranks: Sequence[int]) -> tuple[Strip, ...]:
    store.build(["_timeline", "_mask_meanings", "windows", "gap_causes", "device_ops"])
    causes = [row["cause"] for row in store.select("SELECT DISTINCT cause FROM gap_causes ORDER BY cause")]
    kinds = [*_BUSY_KINDS, *(f"idle:{cause}" for cause in causes)]
    by_rank: dict[int, tuple[int, float, dict[str, list[float]]]] = {}
    for row in store.select(_STRIP, {"bins": _BINS, "ranks": list(ranks), "kinds": kinds}):
        _, _, shares = by_rank.setdefault(row["rank"], (row["begin"], float(row["width"]), {}))
        bins = shares.setdefault(kinds[row["kind"]], [0.0] * _BINS)
        bins[row["bin"]] = round(float(row["share"]), 4)
    return tuple(
        Strip(rank, begin, width, {kind: tuple(bins) for kind, bins in shares.items()})
        for rank, (begin, width, shares) in by_rank.items()
    )


# The samples with the least and with the most allocated memory in each bin, so that no peak is lost.
_MEMORY = """
WITH shown AS (
    SELECT * FROM memory
    WHERE allocated IS NOT NULL AND rank IN (SELECT unnest($ranks))
      AND (device_type > 0 OR rank NOT IN (SELECT rank FROM memory WHERE device_type > 0))
),
sized AS (SELECT rank, device_type, device, min(ts) AS begin, greatest((max(ts) - min(ts)) / $bins, 1) AS width,
                 count(*) AS samples FROM shown GROUP BY ALL),
binned AS (
    SELECT s.*, z.samples,
           CASE WHEN z.samples <= 2 * $bins THEN row_number() OVER (ORDER BY s.rank, s.ts, s.addr, s.bytes)
                ELSE floor((s.ts - z.begin) / z.width)::BIGINT END AS bin
    FROM shown AS s JOIN sized AS z USING (rank, device_type, device)
),
ends AS (
    SELECT rank, device_type, device, samples,
           unnest([arg_min(reading, (allocated, ts)), arg_max(reading, (allocated, ts))]) AS reading
    FROM (SELECT *, {'ts': ts, 'allocated': allocated, 'reserved': reserved} AS reading FROM binned)
    GROUP BY rank, device_type, device, samples, bin
)
SELECT DISTINCT rank, device_type, device, samples, reading.ts AS ts, reading.allocated AS allocated,
       reading.reserved AS reserved
FROM ends ORDER BY rank, device_type, device, ts, allocated
"""


def _memory(store: TraceStore, ranks: Sequence[int]) -> tuple[MemoryCurve, ...]:
    store.build(["memory"])
    curves: dict[tuple[int, int | None, int | None], list[dict[str, Any]]] = {}
    for row in store.select(_MEMORY, {"bins": _SAMPLES, "ranks": list(ranks)}):
        curves.setdefault((row["rank"], row["device_type"], row["device"]), []).append(row)
    return tuple(
        MemoryCurve(
            rank, memory_place(kind, device),
            tuple(row["ts"] for row in rows), tuple(row["allocated"] for row in rows),
            tuple(row["reserved"] for row in rows), rows[0]["samples"],
        )
        for (rank, kind, device), rows in list(curves.items())[:MOST_CURVES]
    )  # fmt: skip


# The step with the highest peak in each column. The largest kinds come first.
_MEMORY_STEPS = """
WITH shown AS (FROM memory_steps WHERE main AND rank IN (SELECT unnest($ranks)) AND peak_bytes > 0),
numbered AS (
    SELECT *, dense_rank() OVER (PARTITION BY rank ORDER BY ts) - 1 AS place FROM shown
),
sized AS (SELECT rank, max(place) // $columns + 1 AS per_column FROM numbered GROUP BY rank),
chosen AS (
    SELECT n.rank, place // per_column AS at, per_column, max_by(place, (allocated, -place)) AS place
    FROM numbered AS n JOIN sized USING (rank) GROUP BY ALL
)
SELECT n.rank, device_type, device, step, c.at, c.per_column, coalesce(kind, 'undecided') AS kind, peak_bytes
FROM chosen AS c JOIN numbered AS n USING (rank, place)
ORDER BY n.rank, sum(peak_bytes) OVER (PARTITION BY n.rank, kind) DESC, kind, c.at
"""


def _memory_steps(store: TraceStore, ranks: Sequence[int]) -> tuple[MemorySteps, ...]:
    store.build(["memory_steps"])
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in store.select(_MEMORY_STEPS, {"columns": _MOST_STEPS, "ranks": list(ranks)}):
        by_rank.setdefault(row["rank"], []).append(row)
    return tuple(_drawn_steps(rank, rows) for rank, rows in by_rank.items())


def _drawn_steps(rank: int, rows: Sequence[dict[str, Any]]) -> MemorySteps:
    steps = {row["at"]: row["step"] for row in sorted(rows, key=lambda row: int(row["at"]))}
    place = {at: number for number, at in enumerate(steps)}
    kinds: dict[str, list[int]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], [0] * len(steps))[place[row["at"]]] = row["peak_bytes"]
    first = rows[0]
    device = memory_place(first["device_type"], first["device"])
    shown = {kind: tuple(values) for kind, values in kinds.items()}
    return MemorySteps(rank, device, tuple(steps.values()), shown, first["per_column"])


_TOTALS = """
SELECT rank, CASE WHEN device AND window_ns > 0 THEN coalesce(busy_ns, 0) / window_ns END AS busy,
       coalesce(exposed_ns, 0) AS exposed, peak_bytes AS peak
FROM _rank_totals
"""


def _ranks(store: TraceStore, steps: Sequence[Step]) -> tuple[RankTimes, ...]:
    """Return the times of each rank, for comparison. The result is empty for a single rank."""
    complete = [step for step in steps if not step.partial]
    ranks = sorted({step.rank for step in complete})
    if len(ranks) < 2:
        return ()
    store.build(["_rank_totals"])
    totals = {row["rank"]: row for row in store.select(_TOTALS)}
    found = []
    steps_of: dict[int, list[Step]] = {}
    for step in complete:
        steps_of.setdefault(step.rank, []).append(step)
    for rank in ranks:
        own = steps_of[rank]
        mean = {part: sum(step.parts_ns[part] for step in own) // len(own) for part in BREAKDOWN}
        length = median([step.dur_ns for step in own])
        whole = totals[rank]
        found.append(
            RankTimes(rank, len(own), length, mean, whole["busy"], whole["exposed"] // len(own), whole["peak"])
        )
    return tuple(found)
