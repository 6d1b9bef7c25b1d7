-- The time of each recording before and after its recurring work. The recurring work is its complete steps; without
-- steps, a loop of CPU ops that takes at least 30 % of the time; otherwise, all of its ops. Only the steady phase and
-- the time before the first event count.
--
-- needs: slices, windows, steps, phases, _extents, _op_loops
-- empty without: windows, _extents
-- column rank: INTEGER, distributed rank
-- column work: VARCHAR, the recurring work: step, loop or op
-- column before: BOOLEAN, true if the stretch is before this work, false if it is after
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column recorded_ns: BIGINT, duration of the recording, including time before its first event
-- column longest_ns: BIGINT, duration of the longest complete step; 0 if there are no steps
WITH
-- The profiler's own span begins with the recording. Its end may include the profiler's own work, but no work of the
-- program follows it. Annotations that are open when the profiler stops last longer.
noted AS (SELECT rank, min(ts) AS ts, max("end") AS "end" FROM slices WHERE cat = 'trace' GROUP BY rank),
counted AS (
    SELECT rank, max(host_end - host_ts) AS longest_ns FROM steps WHERE NOT partial AND step IS NOT NULL GROUP BY rank
),
recurring AS (
    SELECT w.rank, coalesce(c.longest_ns, 0) AS longest_ns,
           CASE WHEN c.rank IS NOT NULL THEN 'step' WHEN l.share >= 0.3 THEN 'loop' ELSE 'op' END AS work,
           CASE work WHEN 'loop' THEN l.ts ELSE w.host_ts END AS ts,
           CASE work WHEN 'loop' THEN l."end" ELSE w.host_end END AS "end"
    FROM windows AS w LEFT JOIN counted AS c USING (rank) LEFT JOIN _op_loops AS l USING (rank)
),
whole AS (
    SELECT r.*, x.host_ts, least(x.host_ts, n.ts) AS begun, least(x.host_end, n."end") AS ended
    FROM recurring AS r JOIN _extents AS x USING (rank) LEFT JOIN noted AS n USING (rank)
),
steady AS (SELECT * FROM phases WHERE phase = 'steady'),
stretches AS (
    SELECT rank, true AS before, begun AS ts, host_ts AS "end" FROM whole
    UNION ALL SELECT w.rank, true, p.ts, least(p."end", w.ts) FROM whole AS w JOIN steady AS p USING (rank)
    UNION ALL SELECT w.rank, false, greatest(p.ts, w."end"), least(p."end", w.ended) FROM whole AS w JOIN steady AS p USING (rank)
)
SELECT w.rank, w.work, s.before, s.ts, s."end", w.ended - w.begun AS recorded_ns, w.longest_ns
FROM whole AS w JOIN stretches AS s USING (rank) WHERE s."end" > s.ts
ORDER BY w.rank, s.ts
