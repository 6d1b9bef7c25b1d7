"""Draws the lanes around a place in a trace: host and device activity, in a limited number of bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perftool.model.pictures import Bar, Lane, LaneSide
from perftool.store.trace_store import TraceStore

# The assumed width of a view in pixels. Slices shorter than a pixel are merged.
_PIXELS = 400
_HOST_LANES = 3
_DEVICE_LANES = 5
_HOST_ROWS = 4
_NEEDS = ("slices", "tracks", "device_ops", "gap_causes", "syncs", "feeding_tracks", "_name_roles")

# The limit on a label, in characters. Each bar has a copy of its name, and thousands of bars may share a long name.
LONGEST_LABEL = 500
# Slices shorter than a pixel become one bar if they are of the same kind and in the same pixel of a lane.
_JOINED = f"""
long AS (SELECT lane, name, kind, ts, "end", 1 AS count FROM cut WHERE "end" - ts >= $pixel),
short AS (
    SELECT lane, CASE WHEN count(*) = 1 THEN any_value(name) END AS name, kind, min(ts) AS ts, max("end") AS "end",
           count(*) AS count
    FROM cut WHERE "end" - ts < $pixel GROUP BY lane, kind, level, (ts - $begin) // $pixel
)
SELECT * REPLACE (cut_text(name, {LONGEST_LABEL}) AS name) FROM (FROM long UNION ALL FROM short)
ORDER BY lane, ts, "end" DESC, kind, name
"""
_DEVICE = f"""
WITH cut AS (
    SELECT coalesce(t.engine, t.id::VARCHAR) AS lane, d.name, coalesce(
               CASE WHEN d.kind = 'kernel' AND d.engine IN ('MME', 'TPC', 'NIC') THEN d.engine END, d.kind) AS kind,
           0 AS level, greatest(d.ts, $begin) AS ts, least(d."end", $until) AS "end"
    FROM device_ops AS d JOIN tracks AS t ON t.id = d.track
    WHERE d.rank = $rank AND d.valid AND d.ts < $until AND d."end" > $begin
    -- If several lanes of an engine run the same kernel at the same time, it is drawn once.
    GROUP BY ALL
), {_JOINED}
"""
_HOST = f"""
WITH cut AS (
    SELECT s.track::VARCHAR AS lane, s.name, s.depth AS level, greatest(s.ts, $begin) AS ts,
           least(s."end", $until) AS "end",
           CASE WHEN y.id IS NOT NULL THEN 'sync' ELSE coalesce(n.drawn, 'other') END AS kind
    FROM slices AS s
    LEFT JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    LEFT JOIN (SELECT DISTINCT id FROM syncs WHERE rank = $rank) AS y ON y.id = s.id
    WHERE s.rank = $rank AND list_contains($tracks, s.track) AND s.ts < $until AND s."end" > $begin AND s.dur >= 0
      AND s.cat IS DISTINCT FROM 'python_function' AND NOT is_step(s.name)
), {_JOINED}
"""
_IDLE = f"""
WITH cut AS (
    SELECT '' AS lane, cause AS name, cause AS kind, 0 AS level, greatest(ts, $begin) AS ts,
           least("end", $until) AS "end"
    FROM gap_causes WHERE rank = $rank AND ts < $until AND "end" > $begin
), {_JOINED}
"""
# The threads to draw: first the one with the marked slice, then those that feed the device, by number of ops in the
# view.
_HOST_TRACKS = """
SELECT t.id, t.process, t.thread,
       count(*) FILTER (s.ts = $mark AND s."end" = $mark_end) AS marked, count(*) FILTER (s.cat = 'cpu_op') AS ops
FROM slices AS s JOIN tracks AS t ON t.id = s.track
WHERE s.rank = $rank AND s.side = 'host' AND s.ts < $until AND s."end" > $begin
  AND (s.track IN (SELECT track FROM feeding_tracks) OR (s.ts = $mark AND s."end" = $mark_end))
GROUP BY ALL HAVING bool_or(s.cat IS DISTINCT FROM 'python_function' AND NOT is_step(s.name))
ORDER BY marked > 0 DESC, ops DESC, count(*) DESC, t.id LIMIT $most
"""


@dataclass(frozen=True)
class View:
    """The stretch of a rank's time to draw, and the marked part of it, in ns."""

    rank: int
    begin: int
    until: int
    mark: int
    mark_end: int

    @property
    def pixel(self) -> int:
        """The length of one pixel, in ns."""
        return max((self.until - self.begin) // _PIXELS, 1)


def lanes_in(store: TraceStore, view: View) -> tuple[Lane, ...]:
    """Return the non-empty lanes in ``view``: idle time by cause, host threads that feed the device, and the device."""
    store.build(_NEEDS)
    idle = _bars(store, _IDLE, view)
    lanes = [_lane("", "Idle, by cause", "idle", idle.get("", []), view, 1)] if idle else []
    return (*lanes, *_host_lanes(store, view), *_device_lanes(store, view))


def capped(lanes: Sequence[Lane], most: int) -> tuple[tuple[Lane, ...], int]:
    """Keep only the longest bars of ``lanes``, at most ``most`` in total. Also return the number of bars left out."""
    lengths = sorted((bar.dur_ns for lane in lanes for bar in lane.bars), reverse=True)
    if len(lengths) <= most:
        return tuple(lanes), 0
    least = lengths[most]
    kept = tuple(replace(lane, bars=tuple(bar for bar in lane.bars if bar.dur_ns > least)) for lane in lanes)
    return kept, len(lengths) - sum(len(lane.bars) for lane in kept)


def _device_lanes(store: TraceStore, view: View) -> Iterable[Lane]:
    bars = _bars(store, _DEVICE, view)
    busiest = sorted(bars, key=lambda lane: (-sum(bar.dur_ns for bar in bars[lane]), _place(lane)))[:_DEVICE_LANES]
    names = {str(row["id"]): row["thread"] or row["tid"] for row in store.select("SELECT id, thread, tid FROM tracks")}
    for lane in sorted(busiest, key=_place):
        yield _lane(lane, str(names.get(lane, lane)).strip(), "device", bars[lane], view, 1)


def _place(lane: str) -> tuple[int, str]:
    """Return the sort key of device lanes: engines by name, then tracks by number."""
    return (int(lane), "") if lane.isdigit() else (-1, lane)


def _host_lanes(store: TraceStore, view: View) -> Iterable[Lane]:
    values = _values(view, "mark", "mark_end", "begin", "until", "rank")
    tracks = store.select(_HOST_TRACKS, {**values, "most": _HOST_LANES})
    bars = _bars(store, _HOST, view, tracks=[row["id"] for row in tracks])
    for row in tracks:
        own = bars.get(str(row["id"]))
        if own:
            yield _lane(str(row["id"]), _thread_name(row), "host", _nested(own), view, _HOST_ROWS)


def _thread_name(row: dict[str, Any]) -> str:
    name = str(row["thread"] or row["process"] or "host thread").strip()
    return name or "host thread"


def _bars(store: TraceStore, sql: str, view: View, **more: Any) -> dict[str, list[Bar]]:
    values = {**_values(view, "rank", "begin", "until", "pixel"), **more}
    found: dict[str, list[Bar]] = {}
    for row in store.select(sql, values):
        bar = Bar(row["ts"], row["end"] - row["ts"], row["kind"], 0, row["name"], row["count"])
        found.setdefault(row["lane"], []).append(bar)
    return found


def _values(view: View, *names: str) -> dict[str, Any]:
    return {name: getattr(view, name) for name in names}


def _lane(key: str, name: str, side: LaneSide, bars: Sequence[Bar], view: View, most_rows: int) -> Lane:
    kept = _coalesced([bar for bar in bars if bar.row < most_rows], view.pixel)
    return Lane(name, side, max((bar.row for bar in kept), default=0) + 1, tuple(kept), key)


def _nested(bars: Sequence[Bar]) -> list[Bar]:
    """Put each of ``bars``, which are in time order, one row below the bar that encloses it."""
    open_ends: list[int] = []
    placed = []
    for bar in bars:
        while open_ends and open_ends[-1] <= bar.ts_ns:
            open_ends.pop()
        placed.append(replace(bar, row=len(open_ends)))
        open_ends.append(bar.ts_ns + bar.dur_ns)
    return placed


def _coalesced(bars: Sequence[Bar], pixel: int) -> list[Bar]:
    """Within each row, merge consecutive short bars of the same kind that are less than a pixel apart."""
    kept: list[Bar] = []
    last: dict[int, int] = {}
    for bar in bars:
        at = last.get(bar.row)
        before = kept[at] if at is not None else None
        if before is not None and at is not None and _joins(before, bar, pixel):
            end = max(before.ts_ns + before.dur_ns, bar.ts_ns + bar.dur_ns)
            joined = before.count + bar.count
            kept[at] = replace(before, dur_ns=end - before.ts_ns, count=joined, name=None)
        else:
            last[bar.row] = len(kept)
            kept.append(bar)
    return kept


def _joins(before: Bar, bar: Bar, pixel: int) -> bool:
    short = (before.count > 1 or before.dur_ns < pixel) and (bar.count > 1 or bar.dur_ns < pixel)
    return short and before.kind == bar.kind and bar.ts_ns - (before.ts_ns + before.dur_ns) < pixel
