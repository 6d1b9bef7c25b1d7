"""Reads the meetings of a run's ranks from its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perftool.replay.ranks.arrivals import Columns, arrivals_of
from perftool.replay.ranks.meetings import NEVER, Meetings
from perftool.replay.recording import Int64s
from perftool.store.trace_store import TraceStore

# A replay needs about ten microseconds per meeting, and 200 bytes per arrival.
MOST_MEETINGS, MOST_ARRIVALS = 50_000, 1_000_000
TABLES = (
    "collectives", "_collective_matches", "_collective_waits", "_rank_stretches", "clocks", "windows", "steps",
    "gain_limits", "_cpu_runs",
)  # fmt: skip
# Differences between ranks that are below this share of the step are normal.
LEAST = 0.02
_MET = "m.ends_together AND m.step IS NOT NULL AND c.offset_ns IS NOT NULL"
# The steps that all ranks have in common. A rank with few steps is left out, because its recording was truncated,
# unless the others wait for it.
_STEPS = f"""
WITH met AS (
    SELECT DISTINCT m.rank, m.step FROM _collective_matches AS m JOIN clocks AS c USING (rank) WHERE {_MET}
),
counted AS (SELECT rank, count(*) AS steps FROM met GROUP BY rank),
waited AS (
    SELECT rank, sum(waited_ns) / count(DISTINCT step) AS ns FROM _collective_waits
    WHERE ends_together AND step IS NOT NULL GROUP BY rank
),
usual AS (
    SELECT (SELECT median(steps) FROM counted) AS steps, (SELECT median(ns) FROM waited) AS ns,
           (SELECT median("end" - ts) FROM steps WHERE NOT partial) AS step_ns
),
enough AS (
    SELECT c.rank FROM counted AS c JOIN waited AS w USING (rank) CROSS JOIN usual AS u
    WHERE 2 * c.steps >= u.steps OR (2 * w.ns < u.ns AND u.ns - w.ns > $least * u.step_ns)
),
shared AS (
    SELECT step FROM met WHERE rank IN (FROM enough) GROUP BY step HAVING count(*) = (SELECT count(*) FROM enough)
)
SELECT s.rank, min(s.ts) AS ts, max(s."end") AS "end", list(s.step ORDER BY s.step) AS steps
FROM steps AS s WHERE s.rank IN (FROM enough) AND s.step IN (FROM shared) AND NOT s.partial GROUP BY s.rank ORDER BY
s.rank
"""
_RANKS = """
SELECT p.rank, p.ts, p."end", c.offset_ns,
       CASE WHEN p.rank IN (SELECT rank FROM _cpu_runs) THEN 0 ELSE coalesce(1 - l.device_ratio, 0) END AS host_share
FROM (SELECT unnest($ranks::INTEGER[]) AS rank, unnest($begins::BIGINT[]) AS ts, unnest($ends::BIGINT[]) AS "end") AS p
JOIN clocks AS c USING (rank) LEFT JOIN gain_limits AS l USING (rank) ORDER BY p.rank
"""
_ARRIVALS = f"""
WITH placed AS (
    SELECT m.match, m.rank, m.step, m.ts, m."end", m.dur, m.ready, m.track,
           max(m.ts + c.offset_ns) OVER (PARTITION BY m.match) AS met,
           dense_rank() OVER (ORDER BY m.group_name, m.members) AS lane,
           dense_rank() OVER (ORDER BY m.operation, m.name, m.bytes, m.group_size) AS kind
    FROM _collective_matches AS m JOIN clocks AS c USING (rank)
    WHERE {_MET} AND m.rank IN (SELECT unnest($ranks::INTEGER[])) AND m.step IN (SELECT unnest($steps::INTEGER[]))
)
SELECT rank, step, ts, "end", dur, coalesce(ready, ts) AS ready, (ready IS NOT NULL)::BIGINT AS known,
       coalesce(track, -1) AS track, lane, kind, dense_rank() OVER (ORDER BY met, match) - 1 AS meeting
FROM placed ORDER BY meeting, rank
"""
_GROUPS = f"""
SELECT DISTINCT dense_rank() OVER (ORDER BY m.group_name, m.members) AS lane, m.group_name,
       CASE WHEN m.sends > 0 THEN m.members END AS pair
FROM _collective_matches AS m JOIN clocks AS c USING (rank)
WHERE {_MET} AND m.rank IN (SELECT unnest($ranks::INTEGER[])) AND m.step IN (SELECT unnest($steps::INTEGER[]))
"""
_PASSES = "SELECT DISTINCT source, target FROM collectives WHERE source <> target ORDER BY source, target"
_STRETCHES = f"""
SELECT rank, ts, "end", coalesce("end" - held_ns, {NEVER}) AS held_until,
       compute_ns, copy_ns, dataloader_ns, compile_ns,
       -- If the host does not wait for collectives, its time in them is work.
       host_ns + CASE WHEN held_ns IS NULL THEN exposed_ns ELSE 0 END AS host_ns
FROM _rank_stretches ORDER BY rank, ts
"""


def read_meetings(store: TraceStore) -> Meetings | str:
    """Return the meetings of the ranks of ``store``, or a clause that says why their steps are not replayed
    together.
    """
    store.build(TABLES)
    spans = store.select(_STEPS, {"least": LEAST})
    if len(spans) < 2:
        return "no collective between ranks was recorded on their devices"
    unsteady = store.select("SELECT unsteady FROM gain_limits WHERE unsteady IS NOT NULL ORDER BY rank LIMIT 1")
    if unsteady:
        return str(unsteady[0]["unsteady"])
    own = {"ranks": [row["rank"] for row in spans]}
    times = {"begins": [row["ts"] for row in spans], "ends": [row["end"] for row in spans]}
    ranks = store.arrays(_RANKS, {**own, **times})
    chosen = {**own, "steps": spans[0]["steps"]}
    found = store.arrays(_ARRIVALS, chosen)
    if len(found["rank"]) > MOST_ARRIVALS or int(found["meeting"].max(initial=-1)) >= MOST_MEETINGS:
        return f"its steps contain more collectives than the {MOST_MEETINGS:,} that a replay allows"
    lanes = store.select(_GROUPS, chosen)
    groups = {row["lane"]: row["group_name"] for row in lanes}
    pairs = {row["lane"]: row["pair"] for row in lanes}
    steps = np.array(chosen["steps"], dtype=np.int64)
    passes = [(row["source"], row["target"]) for row in store.select(_PASSES)]
    return meetings_of(ranks, steps, found, store.arrays(_STRETCHES, {}), groups, pairs, passes)


def meetings_of(
    ranks: Columns, steps: Int64s, found: Columns, stretches: Columns, groups: Mapping[int, str | None],
    pairs: Mapping[int, str | None], passes: Sequence[tuple[int, int]] = (),
) -> Meetings:  # fmt: skip
    """Build the meetings of ``ranks`` in ``steps`` from the columns of the queries above.

    ``groups``: the name of each lane's process group. ``pairs``: the two ranks of each lane for sends and receives,
    such as ``[3, 5]``. ``passes``: the (sender, receiver) pairs of ranks, including ranks without a recording.
    """
    everywhere = _stages(passes)
    stages = {place: [rank for rank in members if rank in ranks["rank"]] for place, members in everywhere.items()}
    stages = {place: members for place, members in stages.items() if members}
    single = {members[0] for place, members in stages.items() if len(members) == 1 < len(everywhere[place])}
    arrivals, roles = arrivals_of(found, ranks, steps, stretches, stages, single)
    known = np.isin(stretches["rank"], ranks["rank"])
    stretches = {name: values[known] for name, values in stretches.items()}
    begins = np.searchsorted(found["meeting"], np.arange(int(found["meeting"].max()) + 1))
    return Meetings(
        ranks=ranks["rank"],
        steps=steps,
        arrivals=arrivals,
        roles=roles,
        stages=stages,
        wire=np.minimum.reduceat(found["dur"], begins),
        kind=found["kind"][begins],
        lane=found["lane"][begins],
        group=[groups[lane] for lane in found["lane"][begins].tolist()],
        passes=np.array([pairs.get(lane) is not None for lane in found["lane"][begins].tolist()], dtype=bool),
        spent=found["dur"],
        begin=ranks["ts"] + ranks["offset_ns"],
        floor_ns=((ranks["end"] - ranks["ts"]) // len(steps) * ranks["host_share"]).astype(np.int64),
    )


def _stages(pairs: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the ranks of each pipeline stage, derived from ``pairs`` of ranks that send to each other."""
    near: dict[int, set[int]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    stages: dict[int, list[int]] = {}
    seen: set[int] = set()
    # Start at the lowest end of each chain, or at the lowest rank of a ring.
    for first in sorted(near, key=lambda rank: (len(near[rank]) > 1, rank)):
        place, rank = 0, first
        while rank not in seen:
            seen.add(rank)
            stages.setdefault(place, []).append(rank)
            rank, place = min((one for one in near[rank] if one not in seen), default=rank), place + 1
    return {place: sorted(ranks) for place, ranks in stages.items()} if len(stages) > 1 else {}
