-- What a rank does between the moments that matter to other ranks: where a collective starts, where the device begins
-- and ends to do nothing but collectives, where steps begin and end. The stretches of a rank follow each other without
-- gaps, over its window.
--
-- A rank is held up (held_ns) while its device does nothing but collectives, if it goes on when one of them ends: other work
-- starts at once, or the host was waiting for it. Otherwise its own work goes on meanwhile, on the host.
--
-- needs: windows, steps, collectives, device_ops, syncs, _timeline, _states, gap_causes
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the complete step in which it lies; NULL between steps and without them
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column held_ns: BIGINT, from the end of the collective that it waits for to its own end; NULL while it waits for none
-- column compute_ns: BIGINT, a kernel other than a collective runs
-- column copy_ns: BIGINT, the device copies or fills and computes nothing, or it is idle during a copy call
-- column dataloader_ns: BIGINT, it is idle while the host waits for data
-- column compile_ns: BIGINT, it is idle while the host compiles
-- column host_ns: BIGINT, it is idle while the host does anything else than wait for it
WITH moments AS (
    SELECT t.rank, t.ts, t."end", s.device FROM _timeline AS t JOIN _states AS s USING (mask)
    JOIN windows AS w ON w.rank = t.rank AND t.ts >= w.ts AND t."end" <= w."end"
    WHERE s.device IS NOT NULL
),
reduced AS (
    SELECT c.rank, c.ts, c."end" FROM collectives AS c JOIN windows AS w ON w.rank = c.rank AND c."end" > w.ts AND c.ts < w."end"
    WHERE c.side = 'device'
),
alone AS (SELECT rank, 0 AS class, ts, "end" FROM moments WHERE device = 'communication'),
islands AS (SELECT rank, ts, "end" FROM interval_union(alone)),
-- The delays are those up to which the replay of a rank follows work of another stream, a launch and a wait.
released AS (
    SELECT i.rank, i.ts, i."end", c."end" AS collective_end FROM islands AS i
    ASOF JOIN reduced AS c ON c.rank = i.rank AND i."end" >= c."end"
    ASOF LEFT JOIN (SELECT rank, ts FROM device_ops WHERE valid) AS d ON d.rank = i.rank AND i."end" <= d.ts
    ASOF LEFT JOIN (SELECT rank, ts, "end" FROM syncs) AS y ON y.rank = i.rank AND i."end" >= y.ts
    WHERE c."end" > i.ts AND i."end" - c."end" <= 25000
        AND (coalesce(d.ts - i."end" <= 50000, false) OR coalesce(y."end" >= i."end" AND y."end" - i."end" <= 100000, false))
),
points AS (
    SELECT r.rank, r.ts AS t FROM reduced AS r JOIN windows AS w ON w.rank = r.rank AND r.ts >= w.ts
    UNION SELECT rank, ts FROM islands UNION SELECT rank, "end" FROM islands
    UNION SELECT rank, ts FROM windows UNION SELECT rank, "end" FROM windows
    UNION SELECT rank, ts FROM steps WHERE NOT partial UNION SELECT rank, "end" FROM steps WHERE NOT partial
),
working AS (
    SELECT rank, CASE device WHEN 'kernel' THEN 'compute' ELSE 'copy' END AS cause, ts, "end"
    FROM moments WHERE device <> 'communication'
    UNION ALL
    SELECT rank, CASE WHEN cause IN ('dataloader', 'compile', 'copy') THEN cause ELSE 'host' END, ts, "end"
    FROM gap_causes WHERE cause NOT IN ('collective', 'sync', 'queued', 'launch_latency', 'unknown')
),
-- How much of each cause there was until the work began, so that what there was until any moment is one lookup away.
so_far AS (
    SELECT *, sum("end" - ts) OVER (PARTITION BY rank, cause ORDER BY ts) - ("end" - ts) AS before FROM working
),
counted AS (
    SELECT p.rank, p.t, c.cause, coalesce(s.before + least(p.t, s."end") - s.ts, 0) AS ns
    FROM points AS p CROSS JOIN (SELECT unnest(['compute', 'copy', 'dataloader', 'compile', 'host']) AS cause) AS c
    ASOF LEFT JOIN so_far AS s ON s.rank = p.rank AND s.cause = c.cause AND p.t >= s.ts
),
until AS (
    SELECT rank, t, sum(ns) FILTER (cause = 'compute') AS compute, sum(ns) FILTER (cause = 'copy') AS copy,
           sum(ns) FILTER (cause = 'dataloader') AS dataloader, sum(ns) FILTER (cause = 'compile') AS compile,
           sum(ns) FILTER (cause = 'host') AS host
    FROM counted GROUP BY rank, t
),
stretches AS (
    SELECT rank, t AS ts, lead(t) OVER w AS "end",
           lead(compute) OVER w - compute AS compute, lead(copy) OVER w - copy AS copy,
           lead(dataloader) OVER w - dataloader AS dataloader, lead(compile) OVER w - compile AS compile,
           lead(host) OVER w - host AS host
    FROM until WINDOW w AS (PARTITION BY rank ORDER BY t)
)
SELECT s.rank, CASE WHEN s.ts < p."end" THEN p.step END AS step, s.ts, s."end", 
       CASE WHEN s.ts < r."end" THEN s."end" - r.collective_end END AS held_ns,
       s.compute::BIGINT AS compute_ns, s.copy::BIGINT AS copy_ns, s.dataloader::BIGINT AS dataloader_ns,
       s.compile::BIGINT AS compile_ns, s.host::BIGINT AS host_ns
FROM stretches AS s
ASOF LEFT JOIN (SELECT rank, step, ts, "end" FROM steps WHERE NOT partial) AS p ON p.rank = s.rank AND s.ts >= p.ts
ASOF LEFT JOIN released AS r ON r.rank = s.rank AND s.ts >= r.ts
WHERE s."end" IS NOT NULL
ORDER BY s.rank, s.ts
