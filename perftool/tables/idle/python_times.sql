-- One row per rank whose device is the CPU, if thread times were recorded: whether the thread had a core in its long
-- stretches (1 ms and more) of Python, of the optimizer's Python, and of ops that compute nothing.
--
-- Python frames and ops do not show whether their thread was running. Stretches shorter than a time slice count as
-- running; the rest of the thread's CPU time is an upper bound for the long stretches. If the CPU is not the device,
-- there are no rows, because the thread may also wait for the device.
--
-- needs: _gap_parts, feeding_tracks, tracks, device_ops, machines, machine_threads
-- empty without: machine_threads
-- column rank: INTEGER, distributed rank
-- column long_ns: BIGINT, duration of the long stretches
-- column core_ns: BIGINT, upper bound on the part of long_ns in which the thread had a core; NULL when several threads feed the device
-- column state: VARCHAR, blocked if the thread neither ran nor was ready to run for more than half of its long stretches of Python; no_core if it waited for a core long enough to explain more than half of long_ns; NULL otherwise
WITH waits AS (SELECT unnest(['dataloader', 'collective', 'checkpoint', 'queue', 'pipe', 'lock', 'sleep', 'autograd']) AS cause),
idle AS (
    SELECT rank, coalesce(sum("end" - ts) FILTER (cause = 'python' AND "end" - ts >= handover_ns()), 0) AS python_ns,
           coalesce(sum("end" - ts) FILTER (needs_core(cause) AND "end" - ts >= handover_ns()), 0) AS long_ns,
           coalesce(sum("end" - ts) FILTER (cause IN (FROM waits)), 0) AS known_ns,
           coalesce(sum("end" - ts) FILTER (cause NOT IN (FROM waits) AND cause <> 'unknown' AND "end" - ts < handover_ns()), 0) AS short_ns
    FROM _gap_parts GROUP BY rank
),
feeding AS (SELECT *, count(*) OVER (PARTITION BY rank) = 1 AS alone FROM feeding_tracks),
computing AS (SELECT track, sum(dur) AS ns FROM device_ops WHERE valid AND dur < handover_ns() GROUP BY track),
threads AS (
    SELECT i.rank, i.python_ns, i.long_ns, m.wall_ns - t.cpu_ns - t.delay_ns - i.known_ns AS blocked_ns, t.delay_ns,
           CASE WHEN f.alone THEN greatest(t.cpu_ns - i.short_ns - coalesce(c.ns, 0), 0) END AS core_ns
    FROM machines AS m JOIN feeding AS f USING (rank) JOIN tracks AS k ON k.id = f.track
    JOIN machine_threads AS t ON t.rank = m.rank AND t.tid = k.tid
    JOIN idle AS i ON i.rank = m.rank
    LEFT JOIN computing AS c ON c.track = f.track
    WHERE m.rank NOT IN (SELECT rank FROM device_ops WHERE op IS DISTINCT FROM id)
)
SELECT rank, max(long_ns)::BIGINT AS long_ns, max(core_ns)::BIGINT AS core_ns,
       CASE WHEN bool_or(python_ns > 0 AND 2 * blocked_ns > python_ns) THEN 'blocked' WHEN bool_or(2 * delay_ns > long_ns) THEN 'no_core' END AS state
FROM threads GROUP BY rank
