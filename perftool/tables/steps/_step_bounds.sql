-- The bounds of each step, including the device work it launched, and whether the step counts.
--
-- A step on a device lasts until the work that it launched is done, and the next step starts at that moment. This is
-- the rule of PyTorch's TensorBoard plugin. There is one exception: work on another stream that ends after the next
-- step's work does not extend its own step. A recording without steps counts as one step. If steps were detected rather
-- than marked, the recording may contain only the end of the first step.
--
-- The first steps of a process compile and start up. Steps that spend at least 5 % of their time on this are left out
-- as warm-up, but at most half of the steps (or two, if that is more). They are left out only if most later steps spend
-- less time on it; otherwise, compiling is normal for the run.
--
-- needs: slices, tracks, step_marks, launches, _links, _device_work, _compile_events, start_up
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name; NULL when the recording has no steps
-- column ordinal: BIGINT, position of the step in the recording, from 0
-- column name: VARCHAR, name of the annotation
-- column host_ts: BIGINT, start of the annotation in ns
-- column host_end: BIGINT, end of the annotation in ns
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column launched: BIGINT, number of units of device work launched inside
-- column left_out: VARCHAR, why per-step numbers exclude the step: incomplete (the recording lacks part of the step) or warm-up; NULL if they include it
-- column partial: BOOLEAN, whether the step is left out
WITH annotated AS (
    SELECT rank, step, name, ts, "end" FROM step_marks
),
-- Ranks without steps; if there are none, no slices are read.
without_steps AS (SELECT rank FROM tracks EXCEPT SELECT rank FROM annotated),
whole AS (
    SELECT rank, min(ts) AS ts, max("end") AS "end"
    FROM slices
    WHERE rank IN (SELECT rank FROM without_steps) AND side = 'host' AND cat = 'cpu_op'
    GROUP BY rank
),
without_ops AS (
    SELECT rank, min(ts) AS ts, max("end") AS "end"
    FROM slices
    WHERE rank IN (SELECT rank FROM without_steps EXCEPT SELECT rank FROM whole) AND cat <> 'trace' AND dur >= 0
    GROUP BY rank
),
host_steps AS (
    SELECT *, row_number() OVER (PARTITION BY rank ORDER BY ts) - 1 AS ordinal FROM (
        SELECT * FROM annotated
        UNION ALL SELECT rank, NULL, 'whole trace', ts, "end" FROM whole
        UNION ALL SELECT rank, NULL, 'whole trace', ts, "end" FROM without_ops)
),
-- A call belongs only to the last step that begins before it, because overlapping steps would otherwise count it twice.
called AS (
    SELECT c.rank, s.ordinal, c.id AS launch, c.device_ops, c.device_ts, c.device_end
    FROM launches AS c ASOF JOIN host_steps AS s ON s.rank = c.rank AND c.ts >= s.ts
    WHERE c."end" <= s."end"
),
-- A stream runs in order, so only work on another stream (a persistent kernel, a late collective) can outlast the work
-- of the next step. Such work does not extend its own step. This does not apply before a step with far less work, which
-- may have been truncated after its first copy.
next_steps AS (
    SELECT rank, ordinal, CASE WHEN lead(work) OVER w >= 0.5 * work THEN lead(device_end) OVER w END AS next_end
    FROM (SELECT rank, ordinal, sum(device_ops) AS work, max(device_end) AS device_end FROM called GROUP BY rank, ordinal)
    WINDOW w AS (PARTITION BY rank ORDER BY ordinal)
),
launched AS (
    SELECT c.rank, c.ordinal, sum(c.device_ops) AS launched, min(c.device_ts) AS device_ts,
           max(c.device_end) FILTER (c.device_end <= coalesce(n.next_end, c.device_end)) AS device_end
    FROM called AS c JOIN next_steps AS n USING (rank, ordinal)
    GROUP BY c.rank, c.ordinal
),
-- Work launched before the first step may still be running when the step begins. On Gaudi, most transfers have no
-- launch; transfers that start inside the step belong to it.
earlier_work AS (
    SELECT d.rank, max(d."end") AS "end"
    FROM _device_work AS d
    JOIN launched AS f ON f.rank = d.rank AND f.ordinal = 0 AND d."end" < f.device_ts
    JOIN host_steps AS h ON h.rank = d.rank AND h.ordinal = 0
        AND (d.engine IS DISTINCT FROM 'PDMA' OR d.ts < h.ts OR d.id IN (SELECT work FROM _links))
    ANTI JOIN (SELECT k.work AS id FROM _links AS k JOIN called AS c ON c.launch = k.launch) AS inside USING (id)
    WHERE d.set_aside IS NULL
    GROUP BY d.rank
),
-- If the training loop ends before the recording, the last step has only begun: it has no ops, unlike the step before.
last_ops AS (
    SELECT rank, max(ts) AS last_op
    FROM slices
    WHERE side = 'host' AND cat = 'cpu_op' AND NOT is_step(name)
    GROUP BY rank
),
ends AS (
    SELECT s.rank, s.step, s.ordinal, s.name, s.ts AS host_ts, s."end" AS host_end,
           coalesce(l.launched, 0) AS launched,
           greatest(e."end", first_value(s.ts) OVER w) AS begin_ts,
           max(greatest(s."end", l.device_end)) OVER w AS reach
    FROM host_steps AS s
    LEFT JOIN launched AS l USING (rank, ordinal)
    LEFT JOIN earlier_work AS e ON e.rank = s.rank
    WINDOW w AS (PARTITION BY s.rank ORDER BY s.ordinal)
),
extended AS (
    SELECT *, greatest(reach, begin_ts) AS "end", max(launched) OVER (PARTITION BY rank) > 0 AS on_device
    FROM ends
),
bounded AS (
    SELECT *,
           CASE WHEN on_device THEN greatest(host_ts, coalesce(lag("end") OVER w, begin_ts)) ELSE host_ts END AS ts,
           max(ordinal) FILTER (launched > 0) OVER (PARTITION BY rank) AS last_launching,
           host_end - host_ts AS host_dur, lag(host_ts) OVER w AS host_ts_before, lead(host_ts) OVER w IS NULL AS is_last
    FROM extended WINDOW w AS (PARTITION BY rank ORDER BY ordinal)
),
-- A last step with far less device work than the others may have been truncated by the end of the recording.
suspects AS (
    SELECT b.rank, b.ordinal
    FROM bounded AS b
    JOIN (SELECT rank, median(launched) FILTER (ordinal <> last_launching) AS launched FROM bounded GROUP BY rank) AS others
        USING (rank)
    WHERE b.ordinal = b.last_launching AND b.ordinal > 0 AND b.launched < 0.8 * others.launched
),
-- If such a step ends with the same op as another step, and the work of its calls was recorded, it is complete and
-- simply did less.
submitting AS (SELECT DISTINCT name FROM launches),
suspect_slices AS (
    SELECT rank, id, name, cat, ts FROM slices
    WHERE rank IN (SELECT rank FROM suspects) AND side = 'host'
        AND (cat = 'cpu_op' AND outermost AND NOT is_step(name) OR cat = 'runtime' AND name IN (SELECT name FROM submitting))
),
ending AS (
    SELECT h.rank, h.ordinal, arg_max(s.name, (s.ts, s.id)) FILTER (s.cat = 'cpu_op') AS op,
           count(*) FILTER (s.cat = 'runtime') AS calls
    FROM suspect_slices AS s ASOF JOIN host_steps AS h ON h.rank = s.rank AND s.ts >= h.ts
    WHERE s.ts < h."end"
    GROUP BY h.rank, h.ordinal
),
whole_suspects AS (
    SELECT s.rank, s.ordinal
    FROM suspects AS s
    JOIN ending AS e USING (rank, ordinal)
    JOIN ending AS o ON o.rank = s.rank AND o.ordinal <> s.ordinal AND o.op = e.op
    JOIN bounded AS b ON b.rank = s.rank AND b.ordinal = s.ordinal
    JOIN bounded AS p ON p.rank = o.rank AND p.ordinal = o.ordinal
    WHERE b.launched / e.calls >= 0.8 * p.launched / o.calls
),
cut AS (
    SELECT rank, ordinal FROM suspects ANTI JOIN whole_suspects USING (rank, ordinal)
    UNION
    SELECT b.rank, 0 FROM bounded AS b
    JOIN (SELECT rank, median(launched) FILTER (ordinal > 0) AS launched FROM bounded GROUP BY rank) AS others USING (rank)
    WHERE b.ordinal = 0 AND b.launched < 0.8 * others.launched
        AND b.rank IN (SELECT rank FROM step_marks WHERE source = 'optimizer')
),
-- The time of compilation and start-up in a step is the total up to the end of the step minus the total up to its
-- start. Joining every event with every step would take quadratic time.
warming AS (
    SELECT rank, 0 AS class, ts, "end" FROM _compile_events UNION ALL SELECT rank, 0, ts, "end" FROM start_up
),
warmed AS (
    SELECT rank, ts, "end", sum("end" - ts) OVER (PARTITION BY rank ORDER BY ts) - ("end" - ts) AS before
    FROM interval_union(warming)
),
unsteady AS (
    SELECT b.rank, b.ordinal
    FROM bounded AS b
    ASOF JOIN warmed AS e ON e.rank = b.rank AND b.host_end >= e.ts
    ASOF LEFT JOIN warmed AS s ON s.rank = b.rank AND b.host_ts >= s.ts
    WHERE b.step IS NOT NULL
        AND e.before + least(b.host_end, e."end") - e.ts - coalesce(s.before + least(b.host_ts, s."end") - s.ts, 0) > 0.05 * b.host_dur
),
judged AS (
    SELECT b.rank, step, b.ordinal, name, b.host_ts, b.host_end, ts,
           CASE WHEN on_device THEN greatest("end", ts) ELSE b.host_end END AS "end", launched,
           -- Iterations of a serving engine are never incomplete: their ends are marked, and their work differs anyway.
           coalesce(count(*) OVER (PARTITION BY b.rank) > 1 AND b.rank NOT IN (SELECT rank FROM step_marks WHERE source = 'iteration') AND CASE WHEN on_device
               THEN b.ordinal > last_launching OR c.ordinal > 0 OR (c.ordinal = 0 AND u.ordinal IS NULL)
               ELSE is_last AND last_op < b.host_ts AND last_op >= host_ts_before END, false) AS incomplete,
           u.ordinal IS NOT NULL AS warms
    FROM bounded AS b LEFT JOIN last_ops USING (rank) LEFT JOIN cut AS c ON c.rank = b.rank AND c.ordinal = b.ordinal
    LEFT JOIN unsteady AS u ON u.rank = b.rank AND u.ordinal = b.ordinal
),
steady AS (
    SELECT j.rank, f.first, count(*) FILTER (NOT incomplete) AS complete,
           count(*) FILTER (NOT incomplete AND ordinal >= f.first) AS later,
           count(*) FILTER (NOT incomplete AND ordinal >= f.first AND warms) AS later_warms
    FROM judged AS j LEFT JOIN (SELECT rank, min(ordinal) AS first FROM judged WHERE NOT warms AND NOT incomplete GROUP BY rank) AS f USING (rank)
    GROUP BY j.rank, f.first
)
SELECT j.rank, step, ordinal, name, host_ts, host_end, ts, "end", launched,
       CASE WHEN incomplete THEN 'incomplete'
            WHEN ordinal < first AND first <= greatest(2, complete / 2) AND 2 * later_warms < later THEN 'warm-up' END AS left_out,
       left_out IS NOT NULL AS partial
FROM judged AS j JOIN steady USING (rank)
