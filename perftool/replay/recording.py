"""Reads the input of a replay: the host threads and the device work of a few steps, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perftool.store.trace_store import TraceStore

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Several consecutive steps are replayed together, to include work that runs into the next step. The limit saves time.
MOST_STEPS = 3
NONE = -1
_BOUNDS = ("ts", "end", "host_ts", "host_end")
TABLES = ("device_ops", "launches", "syncs", "steps", "slices", "tracks", "feeding_tracks", "roles")


@dataclass(frozen=True)
class Intervals:
    """Intervals on host threads in ns, sorted by start. ``thread`` is the index of the thread."""

    id: Int64s
    thread: Int64s
    ts: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class Tasks:
    """Units of device work, sorted by start. ``launch`` is the index of the task's launch, or NONE.

    ``queued``: whether the task was submitted before the window.
    """

    id: Int64s
    lane: Int64s
    ts: Int64s
    end: Int64s
    launch: Int64s
    queued: Bools
    collective: Bools
    copy: Bools

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True)
class Steps:
    """The replayed steps in order, with the times (ns) of the table ``steps``.

    ``repeat`` is false for a recording that is not divided into steps, which is replayed once.
    """

    ts: Int64s
    end: Int64s
    host_ts: Int64s
    host_end: Int64s
    repeat: bool

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def measured_ns(self) -> int:
        """The mean length of a step in ns."""
        return int((self.end - self.ts).sum()) // len(self)


@dataclass(frozen=True)
class Recording:
    """A few steps of one rank. Thread 0 runs the steps.

    ``leaves``: host ops and calls that contain no others. ``waits``: calls that return once the device or another
    thread is done. ``event_waits``: calls that make a stream wait for another. ``computing``: ops that compute on the
    CPU if the CPU is the device; they are work of a thread rather than tasks.
    """

    steps: Steps
    threads: int
    tracks: Mapping[int, int]
    tasks: Tasks
    launches: Intervals
    waits: Intervals
    event_waits: Intervals
    leaves: Intervals
    computing: Intervals

    @property
    def begin(self) -> int:
        """The start of the replay, in ns: the start of the first step on the host."""
        return int(self.steps.host_ts[0])


_STEPS = """
SELECT ts, "end", host_ts, host_end, step IS NOT NULL AS repeat FROM steps
WHERE rank = $rank AND NOT partial ORDER BY host_ts
"""


def choose_steps(store: TraceStore, rank: int) -> Steps | None:
    """Choose up to three consecutive complete steps closest to the median length. Return None if there are none."""
    store.build(["steps"])
    rows = store.select(_STEPS, {"rank": rank})
    if not rows:
        return None
    columns = {name: np.array([row[name] for row in rows], dtype=np.int64) for name in _BOUNDS}
    length = columns["end"] - columns["ts"]
    count = min(MOST_STEPS, len(rows))
    off = np.abs(length - np.median(length))
    first = int(np.argmin([off[k : k + count].sum() for k in range(len(rows) - count + 1)]))
    chosen = {name: values[first : first + count] for name, values in columns.items()}
    return Steps(**chosen, repeat=bool(rows[0]["repeat"]))


def read_recording(store: TraceStore, rank: int, steps: Steps) -> Recording:
    """Read the host and device events of ``rank`` during ``steps``."""
    store.build(TABLES)
    window = {"rank": rank, "begin": int(steps.host_ts[0]), "end": int(steps.host_end[-1])}
    threads = _threads(store, window)
    launches = _intervals(store, _LAUNCHES, window, threads)
    return Recording(
        steps=steps,
        threads=max(threads.values(), default=0) + 1,
        tracks=threads,
        tasks=_tasks(store, window | {"last": int(steps.end[-1])}, launches),
        launches=launches,
        waits=_intervals(store, _WAITS, window, threads),
        event_waits=_intervals(store, _EVENT_WAITS, window, threads),
        leaves=_intervals(store, _LEAVES, window, threads),
        computing=_intervals(store, _COMPUTING, window, threads),
    )


# On Gaudi, a thread has lanes in several processes, so it is identified by its tid alone.
_THREADS = """
WITH chosen AS (
    SELECT track FROM feeding_tracks WHERE rank = $rank
    UNION SELECT track FROM launches WHERE rank = $rank AND ts >= $begin AND ts < $end
),
stepping AS (
    SELECT track, count(*) FILTER (starts_with(name, 'ProfilerStep#')) AS steps, count(*) AS slices FROM slices
    WHERE rank = $rank AND track IN (SELECT track FROM chosen) AND ts >= $begin AND ts < $end AND cat <> 'runtime'
    GROUP BY track
)
SELECT t.id, t.tid, coalesce(s.steps, 0) AS steps, coalesce(s.slices, 0) AS slices,
       coalesce(bool_or(v.subject = 'thread'), false) AS part
FROM chosen AS c JOIN tracks AS t ON t.id = c.track LEFT JOIN stepping AS s ON s.track = c.track
LEFT JOIN _vocabulary AS v ON v.subject = 'thread' AND v.role = 'feeding' AND lower(t.thread) GLOB v.pattern
GROUP BY t.id, t.tid, s.steps, s.slices
ORDER BY part, steps DESC, slices DESC, t.id
"""


def _threads(store: TraceStore, window: Mapping[str, int]) -> dict[int, int]:
    """Return the thread index of every relevant host track; the thread that runs the steps is 0.

    Gaudi's Synapse records the part of its work that runs on the launching thread in a lane with another thread number.
    That lane is assigned to thread 1, if there is one.
    """
    numbers: dict[str, int] = {}
    tracks = {}
    for row in store.select(_THREADS, dict(window)):
        launching = row["part"] and len(numbers) > 1
        tracks[row["id"]] = 1 if launching else numbers.setdefault(row["tid"], len(numbers))
    return tracks


_INSIDE = "rank = $rank AND ts >= $begin AND ts < $end"
_LAUNCHES = f'SELECT id, track, ts, "end" FROM launches WHERE {_INSIDE} AND NOT own_work'
_COMPUTING = f'SELECT id, track, ts, "end" FROM device_ops WHERE {_INSIDE} AND op = id'
# Reading a value waits in a nested call. If that call was not recorded, the read itself counts as the wait.
_WAITS = """
WITH calls AS (
    SELECT id, track, ts, "end" FROM slices
    WHERE side = 'host' AND cat = 'runtime' AND rank = $rank AND ts >= $begin AND ts < $end
        AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role IN ('wait', 'blocking_copy'))
)
SELECT id, track, ts, "end" FROM calls
UNION ALL
SELECT s.id, s.track, s.ts, s."end" FROM syncs AS s
WHERE s.kind = 'scalar_read' AND s.rank = $rank AND s.ts >= $begin AND s.ts < $end
    AND NOT EXISTS (SELECT 1 FROM calls AS c WHERE c.ts >= s.ts AND c.ts < s."end")
"""
_EVENT_WAITS = f"""
SELECT id, track, ts, "end" FROM slices
WHERE side = 'host' AND cat = 'runtime' AND {_INSIDE}
    AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'stream_wait')
"""
_LEAVES = """
WITH inside AS (
    SELECT id, track, ts, "end", parent, cat FROM slices
    WHERE rank = $rank AND side = 'host' AND ts < $end AND "end" > $begin
)
SELECT id, track, ts, "end" FROM inside
WHERE cat IN ('cpu_op', 'runtime') AND id NOT IN (SELECT parent FROM inside WHERE parent IS NOT NULL)
"""


def _intervals(store: TraceStore, sql: str, window: Mapping[str, int], threads: Mapping[int, int]) -> Intervals:
    found = store.arrays(sql, window)
    known = np.array([threads.get(track, NONE) for track in found["track"].tolist()], dtype=np.int64)
    kept = np.flatnonzero(known != NONE)
    order = kept[np.lexsort((found["id"][kept], -found["end"][kept], found["ts"][kept]))]
    return Intervals(found["id"][order], known[order], found["ts"][order], found["end"][order])


# Work without a launch counts as queued before the window if it starts before the window, or before all the work on its
# track with a launch.
_TASKS = f"""
WITH work AS (
    SELECT d.id, d.track, d.ts, d."end", d.launch, d.kind, l.ts AS launched,
           min(d.ts) FILTER (d.launch IS NOT NULL) OVER (PARTITION BY d.track) AS first_launched
    FROM device_ops AS d LEFT JOIN launches AS l ON l.id = d.launch
    WHERE d.rank = $rank AND d.valid AND d.op IS DISTINCT FROM d.id
)
SELECT id, track, ts, "end", coalesce(launch, {NONE}) AS launch, kind = 'collective' AS collective,
       kind IN ('memcpy', 'memset') AS copy,
       coalesce(launched < $begin, coalesce(ts < first_launched, false) OR ts < $begin) AS queued
FROM work
WHERE "end" > $begin AND coalesce(launched < $end, ts < $last)
"""


def _tasks(store: TraceStore, window: Mapping[str, int], launches: Intervals) -> Tasks:
    found: dict[str, Any] = store.arrays(_TASKS, window)
    order = np.lexsort((found["id"], found["end"], found["ts"]))
    found = {name: values[order] for name, values in found.items()}
    by_id = np.argsort(launches.id, kind="stable")
    at = np.searchsorted(launches.id, found["launch"], sorter=by_id)
    at = by_id[np.minimum(at, len(by_id) - 1)] if len(by_id) else np.zeros(len(order), dtype=np.int64)
    hit = launches.id[at] == found["launch"] if len(by_id) else np.zeros(len(order), dtype=bool)
    return Tasks(
        id=found["id"],
        lane=found["track"],
        ts=found["ts"],
        end=found["end"],
        launch=np.where(hit & ~found["queued"], at, NONE),
        queued=found["queued"],
        collective=found["collective"],
        copy=found["copy"],
    )
