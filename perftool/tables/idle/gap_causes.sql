-- One row per part of a gap with a single cause. The parts of all gaps add up exactly to the idle time.
--
-- The activity of the threads that feed the device determines the cause; loader workers, watchdogs and pinning threads
-- do not count. If these threads have no events, the recording does not show what the host did. In that case, the cause
-- is autograd if the next event is a function of the autograd engine, otherwise between_ops. If the CPU is the device,
-- the next event may also be the op that ends the gap.
--
-- Python frames and ops do not show whether their thread was running. If python_times shows that the thread was blocked
-- for more than half of its long stretches of Python, their cause is blocked; if the thread may have been waiting for a
-- core, it is no_core.
--
-- needs: _gap_parts, python_times, slices, roles, feeding_tracks, phases, windows, launches
-- empty without: _gap_parts
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, capture (of a graph), profiler, queued (the work was submitted but does not start), launch_latency, start_up (calls that are slow only once), compile, fallback, dataloader, collective, sync, copy, graph_build, optimizer, launch_call, framework_op, checkpoint, queue, pipe, lock, sleep, python, blocked, no_core, autograd, between_ops or unknown
-- column proof: VARCHAR, kind of event that shows the cause: call, op, annotation, frame, thread (its CPU times), flow (from the launch to the work) or next event; NULL where nothing was recorded
-- column phase: VARCHAR, phases.phase in which the part begins
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
WITH autograd AS (
    SELECT DISTINCT s.rank, s.ts FROM slices AS s JOIN feeding_tracks AS f ON f.track = s.track
    WHERE s.name IN (SELECT name FROM roles WHERE role = 'autograd')
),
located AS (
    SELECT p.gap, p.rank, p.cause, p.ts, p."end", p.resumes OR coalesce(p."end" < w."end", false) AS resumes
    FROM _gap_parts AS p LEFT JOIN (FROM windows SEMI JOIN (FROM launches WHERE own_work) AS o USING (rank)) AS w ON w.rank = p.rank
),
judged AS (
    SELECT p.gap, p.rank,
           CASE WHEN p.cause = 'launch_latency' AND p."end" - p.ts >= handover_ns() THEN 'queued'
                WHEN p."end" - p.ts >= handover_ns() AND (p.cause = 'python' OR (needs_core(p.cause) AND t.state = 'no_core')) THEN coalesce(t.state, p.cause)
                WHEN p.cause <> 'unknown' OR NOT p.resumes THEN p.cause
                WHEN a.ts IS NOT NULL THEN 'autograd' ELSE 'between_ops' END AS cause,
           p.cause = 'unknown' AS silent, p.ts, p."end"
    FROM located AS p LEFT JOIN autograd AS a ON a.rank = p.rank AND a.ts = p."end"
    LEFT JOIN python_times AS t ON t.rank = p.rank
)
SELECT t.gap, t.rank, t.cause,
       CASE WHEN t.silent THEN CASE WHEN t.cause = 'unknown' THEN NULL ELSE 'next event' END
            WHEN t.cause IN ('queued', 'launch_latency') THEN 'flow'
            WHEN t.cause IN ('checkpoint', 'queue', 'pipe', 'lock', 'sleep', 'python', 'autograd') THEN 'frame'
            WHEN t.cause IN ('blocked', 'no_core') THEN 'thread'
            WHEN t.cause = 'framework_op' THEN 'op'
            WHEN t.cause IN ('dataloader', 'optimizer', 'collective', 'compile') THEN 'annotation' ELSE 'call' END AS proof,
       p.phase, t.ts, t."end" - t.ts AS dur, t."end"
FROM judged AS t ASOF LEFT JOIN phases AS p ON p.rank = t.rank AND t.ts >= p.ts
ORDER BY t.gap, t.ts
