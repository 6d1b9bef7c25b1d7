-- The activity of a rank between times that matter to other ranks: starts of collectives, starts and ends of exposed
-- communication, starts and ends of steps. The stretches of a rank cover its window without gaps.
--
-- A rank is blocked (held_ns) during exposed communication if it resumes when a collective ends: work that was already
-- launched starts immediately, or the host was waiting for the collective. Until that launch or wait, or if there is
-- neither, the rank's host counts as working.
--
-- needs: windows, steps, collectives, device_ops, launches, syncs, _timeline, _mask_meanings, gap_causes
-- empty without: windows
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the complete step that contains the stretch; NULL if there is none
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column held_ns: BIGINT, time from the end of the collective that the rank waits for to the end of the stretch; NULL if it waits for none
-- column exposed_ns: BIGINT, time of exposed communication
-- column compute_ns: BIGINT, time while a kernel other than a collective runs
-- column copy_ns: BIGINT, time while the device copies or fills without computing, or is idle during a copy call
-- column dataloader_ns: BIGINT, idle time while the host waits for data
-- column compile_ns: BIGINT, idle time while the host compiles
-- column host_ns: BIGINT, idle time while the host does anything but wait for the device
WITH pieces AS (
    SELECT t.rank, t.ts, t."end", s.device FROM _timeline AS t JOIN _mask_meanings AS s USING (mask)
    JOIN windows AS w ON w.rank = t.rank AND t.ts >= w.ts AND t."end" <= w."end"
),
-- Keep only changes, because the device does the same thing in most neighbouring pieces of the timeline.
changes AS (
    SELECT rank, ts, device FROM pieces
    QUALIFY device IS DISTINCT FROM lag(device) OVER (PARTITION BY rank ORDER BY ts)
    UNION ALL
    SELECT rank, max("end"), NULL FROM pieces GROUP BY rank
),
moments AS (
    SELECT rank, ts, lead(ts) OVER (PARTITION BY rank ORDER BY ts) AS "end", device FROM changes
),
reduced AS (
    SELECT c.rank, c.ts, c."end" FROM collectives AS c JOIN windows AS w ON w.rank = c.rank AND c."end" > w.ts AND c.ts < w."end"
    WHERE c.together
),
-- If the host carries out the collectives (gloo), the time its threads spend waiting for them is exposed. Pauses below
-- 20 us, the limit of the replay, do not count.
hosts AS (
    SELECT rank, 0 AS class, ts, "end" FROM collectives WHERE together AND side = 'host'
    UNION ALL SELECT rank, 1, ts, "end" FROM gap_causes WHERE cause = 'collective'
),
united AS (SELECT * FROM interval_union(hosts)),
swept AS (SELECT rank, ts, "end", mask = 3 AND "end" - ts >= 20000 AS waits FROM interval_sweep(united) WHERE mask >= 2),
islands AS (
    SELECT rank, ts, "end", true AS device FROM moments WHERE device = 'communication'
    UNION ALL SELECT rank, ts, "end", false FROM swept WHERE waits
),
-- The replay uses the same limits (perftool/replay/limits.py): 25 us for a delay after work of another stream, 50 us
-- after a launch, 100 us after a wait. Times are rounded, some to the microsecond, so work may seem to begin up to 2 us
-- before the work that it waits for ends.
submitted AS (
    SELECT d.rank, d.ts, coalesce(l."end", 0) AS launched FROM device_ops AS d LEFT JOIN launches AS l ON l.id = d.launch
    WHERE d.valid
),
followed AS (
    SELECT i.*, c."end" AS over, n."end" AS next_end,
           least(CASE WHEN d.ts - i."end" <= 50000 AND d.launched <= i."end" THEN d.launched END,
                 CASE WHEN y."end" >= i."end" AND y."end" - i."end" <= 100000 THEN y.ts END) AS ready,
           ready IS NOT NULL AND i."end" - c."end" <= 25000 AS at_once
    FROM islands AS i
    ASOF LEFT JOIN reduced AS c ON c.rank = i.rank AND i."end" + 2000 > c."end"
    ASOF LEFT JOIN reduced AS n ON n.rank = i.rank AND i."end" <= n."end"
    ASOF LEFT JOIN submitted AS d ON d.rank = i.rank AND i."end" <= d.ts
    ASOF LEFT JOIN (SELECT rank, ts, "end" FROM syncs) AS y ON y.rank = i.rank AND i."end" >= y.ts
),
-- A host resumes when another thread has the result. That thread may record its end a few time slices later: at most 10
-- ms, and no more than the host waited.
released AS (
    SELECT rank, CASE WHEN device THEN greatest(ts, ready) ELSE ts END AS ts, "end",
           CASE WHEN over > ts AND (NOT device OR at_once) THEN over
                WHEN NOT device AND next_end - "end" <= least("end" - ts, 10000000) THEN next_end END AS collective_end
    FROM followed WHERE collective_end IS NOT NULL
),
points AS (
    SELECT r.rank, r.ts AS t FROM reduced AS r JOIN windows AS w ON w.rank = r.rank AND r.ts >= w.ts
    UNION SELECT rank, ts FROM islands UNION SELECT rank, "end" FROM islands UNION SELECT rank, ts FROM released
    UNION SELECT rank, ts FROM windows UNION SELECT rank, "end" FROM windows
    UNION SELECT rank, ts FROM steps WHERE NOT partial UNION SELECT rank, "end" FROM steps WHERE NOT partial
),
working AS (
    SELECT rank, CASE device WHEN 'kernel' THEN 'compute' ELSE 'copy' END AS cause, ts, "end"
    FROM moments WHERE device <> 'communication'
    UNION ALL
    SELECT rank, 'exposed', ts, "end" FROM islands
    UNION ALL
    SELECT rank, CASE WHEN cause IN ('dataloader', 'compile', 'copy') THEN cause ELSE 'host' END, ts, "end"
    FROM gap_causes WHERE cause NOT IN ('collective', 'sync', 'queued', 'launch_latency', 'unknown')
    -- Time the host spends launching collectives.
    UNION ALL SELECT rank, 'host', ts, "end" FROM swept WHERE NOT waits
),
-- Running total of each cause, so that the amount up to any moment can be looked up quickly.
totals AS (
    SELECT *, sum("end" - ts) OVER (PARTITION BY rank, cause ORDER BY ts) - ("end" - ts) AS before FROM working
),
counted AS (
    SELECT p.rank, p.t, c.cause, coalesce(s.before + least(p.t, s."end") - s.ts, 0) AS ns
    FROM points AS p CROSS JOIN (SELECT unnest(['exposed', 'compute', 'copy', 'dataloader', 'compile', 'host']) AS cause) AS c
    ASOF LEFT JOIN totals AS s ON s.rank = p.rank AND s.cause = c.cause AND p.t >= s.ts
),
until AS (
    SELECT rank, t, sum(ns) FILTER (cause = 'exposed') AS exposed, sum(ns) FILTER (cause = 'compute') AS compute, sum(ns) FILTER (cause = 'copy') AS copy,
           sum(ns) FILTER (cause = 'dataloader') AS dataloader, sum(ns) FILTER (cause = 'compile') AS compile,
           sum(ns) FILTER (cause = 'host') AS host
    FROM counted GROUP BY rank, t
),
stretches AS (
    SELECT rank, t AS ts, lead(t) OVER w AS "end",
           lead(exposed) OVER w - exposed AS exposed, lead(compute) OVER w - compute AS compute, lead(copy) OVER w - copy AS copy,
           lead(dataloader) OVER w - dataloader AS dataloader, lead(compile) OVER w - compile AS compile,
           lead(host) OVER w - host AS host
    FROM until WINDOW w AS (PARTITION BY rank ORDER BY t)
)
SELECT s.rank, CASE WHEN s.ts < p."end" THEN p.step END AS step, s.ts, s."end", 
       CASE WHEN s.ts < r."end" THEN s."end" - r.collective_end END AS held_ns,
       s.exposed::BIGINT AS exposed_ns, s.compute::BIGINT AS compute_ns, s.copy::BIGINT AS copy_ns, s.dataloader::BIGINT AS dataloader_ns,
       s.compile::BIGINT AS compile_ns, s.host::BIGINT AS host_ns
FROM stretches AS s
ASOF LEFT JOIN (SELECT rank, step, ts, "end" FROM steps WHERE NOT partial) AS p ON p.rank = s.rank AND s.ts >= p.ts
ASOF LEFT JOIN released AS r ON r.rank = s.rank AND s.ts >= r.ts
WHERE s."end" IS NOT NULL
ORDER BY s.rank, s.ts
