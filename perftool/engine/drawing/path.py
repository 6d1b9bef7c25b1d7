"""Draws the critical path of a step of median length: a separate lane, and the highlighted parts of other lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perftool.engine.drawing.lanes import LONGEST_LABEL, View, capped, lanes_in
from perftool.model.annotations import Lane as AnnotatedLane
from perftool.model.annotations import Mark
from perftool.model.pictures import Bar, Lane, Timeline
from perftool.model.words import kind_label
from perftool.store.trace_store import TraceStore
from perftool.units import format_ns

# The number of bins into which the path lane divides the step.
_BINS = 400
_STEP = """
WITH drawn AS (SELECT DISTINCT step FROM critical_path WHERE rank = $rank),
complete AS (
    SELECT s.*, median(s.dur) OVER () AS usual FROM steps AS s
    WHERE s.rank = $rank AND NOT s.partial AND EXISTS (FROM drawn AS d WHERE d.step IS NOT DISTINCT FROM s.step)
)
SELECT name, step, ts, "end" FROM complete WHERE dur > 0 ORDER BY abs(dur - usual), ts LIMIT 1
"""
_STRETCHES = f"""
SELECT p.kind, cut_text(p.name, {LONGEST_LABEL}) AS name, coalesce(t.engine, p.track::VARCHAR) AS lane,
       greatest(p.ts, $begin) AS ts, least(p."end", $until) AS "end"
FROM critical_path AS p LEFT JOIN tracks AS t ON t.id = p.track AND t.side = 'device'
WHERE p.rank = $rank AND p.ts < $until AND p."end" > $begin ORDER BY p.place
"""


def path_timeline(store: TraceStore, rank: int, most_bars: int) -> Timeline | None:
    """Return the timeline of one step of ``rank``. Among the complete steps with a critical path, it is the step with
    the duration closest to their median. Return None if there is no such step."""
    store.build(["critical_path", "steps", "tracks"])
    found = store.select(_STEP, {"rank": rank})
    if not found:
        return None
    step = found[0]
    begin, until = step["ts"], step["end"]
    rows = store.select(_STRETCHES, {"rank": rank, "begin": begin, "until": until})
    lanes, left_out = capped(lanes_in(store, View(rank, begin, until, begin, until)), most_bars)
    path = Lane("Critical path", "path", 1, tuple(_bars(rows, begin, until)))
    pixel = max((until - begin) // _BINS, 1)
    return Timeline(
        rank, begin, until - begin, begin, until - begin, None, step["name"],
        (path, *(lane for lane in lanes if lane.side != "idle")), left_out, _highlighted(rows, pixel),
    )  # fmt: skip


def _bars(rows: Sequence[dict[str, Any]], begin: int, until: int) -> list[Bar]:
    """Return the bars of the path lane. Each bin gets the kind that bounds the largest part of it. Adjacent bins of the
    same kind form a bar, which is named if one name accounts for more than half of it."""
    width = (until - begin) / _BINS
    bins: list[dict[tuple[str, str | None], float]] = [{} for _ in range(_BINS)]
    for row in rows:
        first, last = (min(int((row[at] - begin) / width), _BINS - 1) for at in ("ts", "end"))
        for number in range(first, last + 1):
            inside = min(row["end"], begin + (number + 1) * width) - max(row["ts"], begin + number * width)
            key = (row["kind"], row["name"])
            bins[number][key] = bins[number].get(key, 0.0) + max(inside, 0.0)
    found: list[tuple[int, str, dict[str | None, float]]] = []
    for number, shares in enumerate(bins):
        kinds: dict[str, float] = {}
        for (kind, _), share in shares.items():
            kinds[kind] = kinds.get(kind, 0.0) + share
        kind = max(kinds, key=lambda name: (kinds[name], name), default="")
        if not found or found[-1][1] != kind:
            found.append((number, kind, {}))
        for (own, name), share in shares.items():
            if own == kind:
                found[-1][2][name] = found[-1][2].get(name, 0.0) + share
    ends = [*(number for number, _, _ in found[1:]), _BINS]
    return [
        _bar(round(begin + number * width), round(begin + end * width), kind, names)
        for (number, kind, names), end in zip(found, ends, strict=True)
        if kind
    ]


def _bar(ts: int, end: int, kind: str, names: dict[str | None, float]) -> Bar:
    main = max(names, key=lambda name: (names[name], name or ""))
    fills = names[main] > 0.5 * (end - ts)
    return Bar(ts, end - ts, kind, 0, main if fills else None, 1 if fills else len(names))


def _highlighted(rows: Sequence[dict[str, Any]], pixel: int) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return the stretches of the critical path by lane. Stretches less than a pixel apart are merged."""
    found: dict[str, list[list[int]]] = {}
    for row in sorted(rows, key=lambda row: (row["ts"], row["end"])):
        if row["lane"] is None:
            continue
        mine = found.setdefault(row["lane"], [])
        if mine and row["ts"] - mine[-1][1] < pixel:
            mine[-1][1] = max(mine[-1][1], row["end"])
        else:
            mine.append([row["ts"], row["end"]])
    return {lane: tuple((ts, end - ts) for ts, end in spans) for lane, spans in found.items()}


_MARKS = f"""
SELECT p.kind, cut_text(p.name, {LONGEST_LABEL}) AS name, p.ts, p."end", p.bound_ns, p.track,
       coalesce(t.thread, t.tid) AS lane
FROM critical_path AS p JOIN tracks AS t ON t.id = p.track
WHERE p.rank = $rank AND p.dur > 0 ORDER BY p.place
"""


def path_marks(store: TraceStore, rank: int) -> tuple[list[AnnotatedLane], list[tuple[int, int, int, int]]]:
    """Return the critical path as one lane per thread and stream, and its transitions between lanes.

    Each transition is (lane, ts, lane, ts): the indices of two lanes, and the start times of marks on them in ns.
    """
    store.build(["critical_path", "tracks"])
    lanes: dict[int, tuple[str, list[Mark]]] = {}
    way: list[tuple[int, int, int, int]] = []
    last: tuple[int, int] | None = None
    for row in store.select(_MARKS, {"rank": rank}):
        _, marks = lanes.setdefault(row["track"], (f"critical path: {str(row['lane']).strip()}", []))
        # Work on a stream may overlap its predecessor on the path, but marks in a lane must not overlap.
        begin = max(row["ts"], marks[-1].ts_ns + marks[-1].dur_ns) if marks else row["ts"]
        if begin >= row["end"]:
            continue
        bound = {"kind": row["kind"], "bounds the step for": format_ns(row["bound_ns"])}
        marks.append(Mark(row["name"] or kind_label(row["kind"]), begin, row["end"] - begin, bound))
        place = list(lanes).index(row["track"])
        if last is not None and last[0] != place:
            way.append((*last, place, begin))
        last = (place, begin)
    return [AnnotatedLane(name, marks) for name, marks in lanes.values()], way
