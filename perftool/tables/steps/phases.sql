-- One row per stretch of a phase. The stretches of a rank cover its recording without gaps, from its first host event
-- to its last. Gains and all statements about steps refer to the steady phase.
--
-- If several phases apply at once, the first in this order counts: the capture of a graph, the profiler's own work,
-- saving a checkpoint, evaluation during training, start-up, warm-up. Start-up lasts as long as calls that are slow
-- only once take at least half of the time since the start; later calls of this kind count individually. Warm-up
-- consists of the steps that are left out as warm-up, and of compilation before the first step that counts. Time the
-- profiler spends waiting for the device does not count as the profiler's work, because the device works on the
-- recorded steps.
--
-- needs: slices, roles, start_up, syncs, _step_bounds, _compile_events, _extents, _stream_captures
-- empty without: _extents
-- column rank: INTEGER, distributed rank
-- column phase: VARCHAR, startup, warmup, capture, profiler, checkpoint, evaluation or steady
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column evidence: VARCHAR, the longest call, function or step in the stretch that proves the phase; NULL for steady
WITH phase_names AS (
    SELECT name, cat, min(role) AS role FROM roles
    WHERE (cat = 'python_function' AND role IN ('profiler', 'checkpoint', 'evaluation'))
        OR (cat IN ('cpu_op', 'user_annotation') AND role IN ('capture', 'checkpoint', 'evaluation'))
        OR (cat = 'overhead' AND role IN ('profiler', 'loading'))
    GROUP BY name, cat
),
shown AS (
    SELECT s.rank, s.name, s.ts, s."end", t.role FROM slices AS s JOIN phase_names AS t ON t.name = s.name AND t.cat = s.cat
    WHERE s.side = 'host'
),
-- A function around a save is part of the save if it does little else, such as renaming the file.
saves AS (
    SELECT s.id, s.rank, s.track, s.ts, s."end" FROM slices AS s JOIN phase_names AS t ON t.name = s.name AND t.cat = s.cat
    WHERE t.role = 'checkpoint' AND s.cat = 'python_function' AND s.side = 'host'
),
save_totals AS (SELECT DISTINCT track, ts, sum("end" - ts) OVER (PARTITION BY track ORDER BY ts) AS ns FROM saves),
around AS (
    SELECT p.id, p.rank, p.track, p.name, p.ts, p."end"
    FROM (SELECT * FROM slices WHERE cat = 'python_function' AND track IN (SELECT track FROM saves) AND id NOT IN (SELECT id FROM saves)) AS p
    ASOF LEFT JOIN save_totals AS b ON b.track = p.track AND p.ts > b.ts
    ASOF JOIN save_totals AS u ON u.track = p.track AND p."end" > u.ts
    WHERE 2 * (u.ns - coalesce(b.ns, 0)) > p."end" - p.ts
),
worked AS (
    SELECT s.track, s.ts FROM (SELECT * FROM slices WHERE track IN (SELECT track FROM around)) AS s
    ASOF LEFT JOIN saves AS c ON c.track = s.track AND s.ts >= c.ts
    WHERE s.cat = 'cpu_op' AND s.outermost AND (c.ts IS NULL OR s.ts >= c."end")
        AND s.name NOT IN (SELECT name FROM roles WHERE role = 'bookkeeping')
),
saving AS (
    SELECT p.* FROM around AS p ASOF LEFT JOIN worked AS w ON w.track = p.track AND p."end" > w.ts WHERE w.ts IS NULL OR w.ts < p.ts
),
training AS (SELECT DISTINCT rank FROM slices WHERE name IN (SELECT name FROM roles WHERE role IN ('optimizer_step', 'update'))),
slow AS (
    SELECT rank, 0 AS class, ts, "end", name FROM start_up
    UNION ALL SELECT rank, 0, ts, "end", name FROM shown WHERE role = 'loading'
),
slow_lengths AS (
    SELECT u.rank, u."end", sum(u."end" - u.ts) OVER (PARTITION BY u.rank ORDER BY u.ts) AS until
    FROM interval_union(slow) AS u
),
started AS (
    SELECT l.rank, x.host_ts AS ts, max(l."end") AS "end" FROM slow_lengths AS l JOIN _extents AS x USING (rank)
    WHERE 2 * l.until >= l."end" - x.host_ts GROUP BY l.rank, x.host_ts
),
steady AS (SELECT rank, min(host_ts) AS ts FROM _step_bounds WHERE NOT partial AND step IS NOT NULL GROUP BY rank),
-- class: precedence of the phase; where phases overlap, the lowest class counts.
kinds AS (
    SELECT rank, 0 AS class, ts, "end", name FROM _stream_captures
    UNION ALL SELECT rank, 0, ts, "end", name FROM shown WHERE role = 'capture'
    UNION ALL SELECT rank, 1, ts, "end", name FROM shown WHERE role = 'profiler'
    UNION ALL SELECT rank, 2, ts, "end", name FROM shown WHERE role = 'checkpoint'
    UNION ALL SELECT rank, 2, ts, "end", name FROM saving
    UNION ALL SELECT rank, 3, ts, "end", name FROM shown WHERE role = 'evaluation' AND rank IN (FROM training)
    UNION ALL SELECT rank, 4, ts, "end", name FROM slow
    UNION ALL SELECT rank, 4, ts, "end", NULL FROM started
    UNION ALL SELECT rank, 5, host_ts, host_end, name FROM _step_bounds WHERE left_out = 'warm-up'
    UNION ALL SELECT c.rank, 5, c.ts, c."end", s.name FROM _compile_events AS c JOIN steady AS t USING (rank)
              JOIN slices AS s ON s.id = c.id WHERE c.ts < t.ts
),
classes AS (
    SELECT k.rank, k.class, greatest(k.ts, x.host_ts) AS ts, least(k."end", x.host_end) AS "end"
    FROM kinds AS k JOIN _extents AS x USING (rank)
    UNION ALL SELECT rank, 6, host_ts, host_end FROM _extents
    -- Waits for the device matter only during the profiler's own work.
    UNION ALL SELECT w.rank, 7, w.ts, w."end" FROM syncs AS w SEMI JOIN shown AS p ON p.rank = w.rank AND p.role = 'profiler'
),
united AS (SELECT * FROM interval_union(classes)),
swept AS (
    SELECT rank, ts, "end", CASE WHEN mask & 128 > 0 THEN mask & ~(128 | 2) ELSE mask END AS mask
    FROM interval_sweep(united)
),
-- The lowest bit in the mask belongs to the phase that counts.
pieces AS (
    SELECT rank, ts, "end",
           ['capture', 'profiler', 'checkpoint', 'evaluation', 'startup', 'warmup', 'steady'][
               list_position(list_transform(range(7), lambda c: mask & (1::BIGINT << c) > 0), true)] AS phase
    FROM swept WHERE mask > 0
),
numbered AS (
    SELECT *, sum((phase IS DISTINCT FROM before)::INTEGER) OVER (PARTITION BY rank ORDER BY ts) AS number
    FROM (SELECT *, lag(phase) OVER (PARTITION BY rank ORDER BY ts) AS before FROM pieces)
),
stretches AS (
    SELECT rank, phase, min(ts) AS ts, max("end") AS "end" FROM numbered GROUP BY rank, phase, number
),
classed AS (
    SELECT rank, ts, "end", list_position(['capture', 'profiler', 'checkpoint', 'evaluation', 'startup', 'warmup'], phase) - 1 AS class
    FROM stretches
),
-- An interval inside another interval of its class is not needed.
widest AS (
    SELECT * FROM (
        SELECT *, max("end") OVER (PARTITION BY rank, class ORDER BY ts, "end" DESC, name ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
        FROM kinds WHERE name IS NOT NULL)
    WHERE reach IS NULL OR "end" > reach
),
-- The interval that covers most of a stretch starts inside it, or is the last one that starts before it.
covering AS (
    SELECT s.rank, s.ts, k.name, least(k."end", s."end") - s.ts AS ns, k.ts AS since
    FROM classed AS s ASOF JOIN widest AS k ON k.rank = s.rank AND k.class = s.class AND s.ts >= k.ts WHERE k."end" > s.ts
    UNION ALL
    SELECT s.rank, s.ts, k.name, least(k."end", s."end") - k.ts, k.ts
    FROM widest AS k ASOF JOIN classed AS s ON s.rank = k.rank AND k.ts >= s.ts WHERE s.class = k.class AND k.ts < s."end"
),
proven AS (SELECT rank, ts, arg_max(name, (ns, -since, name)) AS evidence FROM covering GROUP BY rank, ts)
SELECT s.rank, s.phase, s.ts, s."end" - s.ts AS dur, s."end", p.evidence
FROM stretches AS s LEFT JOIN proven AS p ON p.rank = s.rank AND p.ts = s.ts
ORDER BY s.rank, s.ts
