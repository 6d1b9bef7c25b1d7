-- Whether the thread of a run on the CPU had a core in its long stretches of Python (1 ms and more), judged by the CPU time
-- of the thread. One row per rank that has it.
--
-- A frame of Python does not show whether its thread runs. Stretches shorter than a scheduler's time slice
-- count as running, so the long stretches had at most the rest of the thread's CPU time. If the device is not the CPU, the
-- thread may have waited for a busy device.
--
-- needs: _gap_parts, feeding_tracks, tracks, device_ops, machines, machine_threads
-- empty without: machine_threads
-- column rank: INTEGER, distributed rank
-- column python_ns: BIGINT, length of the long stretches
-- column core_ns: BIGINT, upper bound on the time that the thread had a core in them; NULL when several threads feed the device
-- column state: VARCHAR, state of the thread for more than half of their length: blocked (neither running nor ready), no_core (ready, without a core); else NULL
WITH waits AS (SELECT unnest(['dataloader', 'collective', 'checkpoint', 'queue', 'pipe', 'lock', 'sleep', 'autograd']) AS cause),
idle AS (
    SELECT rank, coalesce(sum("end" - ts) FILTER (cause = 'python' AND "end" - ts >= handover_ns()), 0) AS python_ns,
           coalesce(sum("end" - ts) FILTER (cause IN (FROM waits)), 0) AS known_ns,
           coalesce(sum("end" - ts) FILTER (cause NOT IN (FROM waits) AND cause <> 'unknown' AND "end" - ts < handover_ns()), 0) AS short_ns
    FROM _gap_parts GROUP BY rank
),
feeding AS (SELECT *, count(*) OVER (PARTITION BY rank) = 1 AS alone FROM feeding_tracks),
computing AS (SELECT track, sum(dur) AS ns FROM device_ops WHERE valid AND dur < handover_ns() GROUP BY track),
threads AS (
    SELECT i.rank, i.python_ns, m.wall_ns - t.cpu_ns - t.delay_ns - i.known_ns AS blocked_ns, t.delay_ns,
           CASE WHEN f.alone THEN greatest(t.cpu_ns - i.short_ns - coalesce(c.ns, 0), 0) END AS core_ns
    FROM machines AS m JOIN feeding AS f USING (rank) JOIN tracks AS k ON k.id = f.track
    JOIN machine_threads AS t ON t.rank = m.rank AND t.tid = k.tid
    JOIN idle AS i ON i.rank = m.rank
    LEFT JOIN computing AS c ON c.track = f.track
    WHERE m.rank NOT IN (SELECT rank FROM device_ops WHERE op IS DISTINCT FROM id)
)
SELECT rank, max(python_ns)::BIGINT AS python_ns, max(core_ns)::BIGINT AS core_ns,
       CASE WHEN bool_or(2 * blocked_ns > python_ns) THEN 'blocked'
            WHEN bool_or(2 * (core_ns + greatest(blocked_ns, 0)) < python_ns AND 2 * delay_ns > python_ns) THEN 'no_core' END AS state
FROM threads GROUP BY rank
