-- One row per part of a gap with one cause. The parts of all gaps add up to the idle time exactly.
--
-- The activity of the threads that feed the device determines the cause; loader workers, watchdogs and pinning threads
-- do not count. While the feeding threads have no events, the recording does not say what the host did. The event that
-- ends such a silence locates it: in the autograd engine if its next function starts there (autograd), else between two
-- ops (between_ops).
--
-- A frame of Python does not show whether its thread runs. Where the recording has the times of the thread, and they
-- show that it was blocked for more than half of its long stretches of Python, these are called blocked. That is known of
-- runs on the CPU alone: elsewhere the thread may have waited for a busy device.
--
-- needs: _gaps, _timeline, _mask_meanings, slices, roles, feeding_tracks, phases, tracks, device_ops, machines, machine_threads
-- empty without: _gaps
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, capture (of a graph), profiler, queued (the work was submitted but does not start), launch_latency, start_up (calls that are slow once), compile, fallback, dataloader, collective, sync, copy, graph_build, optimizer, launch_call, framework_op, checkpoint, queue, pipe, lock, sleep, python, blocked, autograd, between_ops or unknown
-- column proof: VARCHAR, kind of event that shows the cause: call, op, annotation, frame, thread (its times), flow (of the work to its launch) or next event; NULL where nothing was recorded
-- column phase: VARCHAR, phases.phase in which it begins
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
WITH stretches AS (
    SELECT t.rank, t.ts, g.id AS gap, g."end" AS gap_end, t.ts = g.ts AS first, t.cause
    FROM (SELECT rank, ts, cause FROM _timeline JOIN _mask_meanings USING (mask) WHERE device IS NULL) AS t
    ASOF JOIN _gaps AS g ON g.rank = t.rank AND t.ts >= g.ts WHERE t.ts < g."end"
),
-- A part begins with its gap, and where the cause changes.
starts AS (
    SELECT * FROM stretches
    QUALIFY first OR cause IS DISTINCT FROM lag(cause) OVER (PARTITION BY rank ORDER BY ts)
),
parts AS (
    SELECT gap, rank, cause, ts, least(lead(ts) OVER in_order, gap_end) AS "end",
           coalesce(lead(ts) OVER in_order < gap_end, false) AS resumes
    FROM starts WINDOW in_order AS (PARTITION BY rank ORDER BY ts)
),
autograd AS (
    SELECT DISTINCT s.rank, s.ts FROM slices AS s JOIN feeding_tracks AS f ON f.track = s.track
    WHERE s.name IN (SELECT name FROM roles WHERE role = 'autograd')
),
blocked AS (
    SELECT m.rank
    FROM machines AS m JOIN feeding_tracks AS f USING (rank) JOIN tracks AS k ON k.id = f.track
    JOIN machine_threads AS t ON t.rank = m.rank AND t.tid = k.tid
    JOIN (SELECT rank, sum("end" - ts) FILTER (cause = 'python' AND "end" - ts >= handover_ns()) AS python_ns,
                 coalesce(sum("end" - ts) FILTER (cause IN ('dataloader', 'collective', 'checkpoint', 'queue', 'pipe', 'lock', 'sleep', 'autograd')), 0) AS known_ns
          FROM parts GROUP BY rank) AS p ON p.rank = m.rank
    WHERE 2 * (m.wall_ns - t.cpu_ns - t.delay_ns - p.known_ns) > p.python_ns
        AND m.rank NOT IN (SELECT rank FROM device_ops WHERE op IS DISTINCT FROM id)
),
told AS (
    SELECT p.gap, p.rank,
           CASE WHEN p.cause = 'launch_latency' AND p."end" - p.ts >= handover_ns() THEN 'queued'
                WHEN p.cause = 'python' AND p."end" - p.ts >= handover_ns() AND p.rank IN (FROM blocked) THEN 'blocked'
                WHEN p.cause <> 'unknown' OR NOT p.resumes THEN p.cause
                WHEN a.ts IS NOT NULL THEN 'autograd' ELSE 'between_ops' END AS cause,
           p.cause = 'unknown' AS silent, p.ts, p."end"
    FROM parts AS p LEFT JOIN autograd AS a ON a.rank = p.rank AND a.ts = p."end"
)
SELECT t.gap, t.rank, t.cause,
       CASE WHEN t.silent THEN CASE WHEN t.cause = 'unknown' THEN NULL ELSE 'next event' END
            WHEN t.cause IN ('queued', 'launch_latency') THEN 'flow'
            WHEN t.cause IN ('checkpoint', 'queue', 'pipe', 'lock', 'sleep', 'python', 'autograd') THEN 'frame'
            WHEN t.cause = 'blocked' THEN 'thread'
            WHEN t.cause = 'framework_op' THEN 'op'
            WHEN t.cause IN ('dataloader', 'optimizer', 'collective', 'compile') THEN 'annotation' ELSE 'call' END AS proof,
       p.phase, t.ts, t."end" - t.ts AS dur, t."end"
FROM told AS t ASOF LEFT JOIN phases AS p ON p.rank = t.rank AND t.ts >= p.ts
ORDER BY t.gap, t.ts
