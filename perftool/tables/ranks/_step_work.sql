-- What a rank does in each complete step, in the parts in which ranks may differ: why one may come last to collectives.
--
-- needs: steps, _timeline, _states, gap_causes
-- empty without: steps
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step
-- column compute_ns: BIGINT, a kernel other than a collective runs
-- column copy_ns: BIGINT, the device copies or fills and computes nothing, or it is idle during a copy call
-- column dataloader_ns: BIGINT, it is idle while the host waits for data
-- column compile_ns: BIGINT, it is idle while the host compiles
-- column host_ns: BIGINT, it is idle while the host does anything else than wait for it
WITH whole AS (SELECT rank, step, ts, "end" FROM steps WHERE step IS NOT NULL AND NOT partial),
working AS (
    SELECT s.rank, s.step, CASE t.device WHEN 'kernel' THEN 'compute' ELSE 'copy' END AS cause, sum(t."end" - t.ts) AS ns
    FROM (SELECT * FROM _timeline JOIN _states USING (mask) WHERE device IN ('kernel', 'memcpy', 'memset')) AS t
    ASOF JOIN whole AS s ON s.rank = t.rank AND t.ts >= s.ts
    WHERE t.ts < s."end"
    GROUP BY ALL
),
idle AS (
    SELECT s.rank, s.step, CASE WHEN g.cause IN ('dataloader', 'compile', 'copy') THEN g.cause ELSE 'host' END AS cause,
           sum(g.dur) AS ns
    FROM gap_causes AS g ASOF JOIN whole AS s ON s.rank = g.rank AND g.ts >= s.ts
    WHERE g.ts < s."end" AND g.cause NOT IN ('collective', 'sync', 'queued', 'launch_latency', 'unknown')
    GROUP BY ALL
),
every AS (SELECT * FROM working UNION ALL SELECT * FROM idle)
SELECT s.rank, s.step, coalesce(sum(ns) FILTER (cause = 'compute'), 0)::BIGINT AS compute_ns,
       coalesce(sum(ns) FILTER (cause = 'copy'), 0)::BIGINT AS copy_ns,
       coalesce(sum(ns) FILTER (cause = 'dataloader'), 0)::BIGINT AS dataloader_ns,
       coalesce(sum(ns) FILTER (cause = 'compile'), 0)::BIGINT AS compile_ns,
       coalesce(sum(ns) FILTER (cause = 'host'), 0)::BIGINT AS host_ns
FROM whole AS s LEFT JOIN every USING (rank, step)
GROUP BY s.rank, s.step
ORDER BY s.rank, s.step
