-- One row per part of a gap with one cause. The parts of all gaps add up to the idle time exactly.
--
-- A part counts for what the threads that feed the device do; workers of a loader, watchdogs and pinning threads are
-- not among them. While these threads show nothing, what ends the silence tells where the host was: in the autograd
-- engine when its next function starts there (autograd), else between two ops (between_ops; Python, unless it was
-- recorded).
--
-- needs: _gaps, _timeline, _states, slices, roles, feeding_tracks
-- empty without: _gaps
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, start_up (calls that are slow once), compile, fallback, dataloader, collective, sync, copy, graph_build, launch_latency, queued (the work was submitted before the gap began), optimizer, launch_call, framework_op, python, autograd, between_ops or unknown
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
WITH stretches AS (
    SELECT t.rank, t.ts, g.id AS gap, g."end" AS gap_end, t.ts = g.ts AS first, t.cause
    FROM (SELECT rank, ts, cause FROM _timeline JOIN _states USING (mask) WHERE device IS NULL) AS t
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
)
SELECT p.gap, p.rank,
       CASE WHEN p.cause <> 'unknown' OR NOT p.resumes THEN p.cause
            WHEN a.ts IS NOT NULL THEN 'autograd' ELSE 'between_ops' END AS cause,
       p.ts, p."end" - p.ts AS dur, p."end"
FROM parts AS p LEFT JOIN autograd AS a ON a.rank = p.rank AND a.ts = p."end"
ORDER BY p.gap, p.ts
