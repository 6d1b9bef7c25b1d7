-- Where each step starts and ends once the device work it launched is counted in, and whether it counts.
--
-- A step on a device lasts until the work it launched is done; the next step starts there. This is the rule of
-- PyTorch's TensorBoard plugin, so that its users find their numbers again. Without steps the whole recording
-- is one.
--
-- The first steps of a process compile and start up; what they take says nothing of the steady step. They are left out
-- where others remain: as many as do so for a twentieth of their time, but no more than half of the steps or two, and
-- only when most of the others do not. Else it is a habit of the run.
--
-- needs: slices, tracks, launches, _links, _device_work, _compile_events, start_up
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name; NULL when the recording has no steps
-- column ordinal: BIGINT, position of the step in the recording, from 0
-- column name: VARCHAR, name of the annotation
-- column host_ts: BIGINT, start of the annotation in ns
-- column host_end: BIGINT, end of the annotation in ns
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column launched: BIGINT, units of device work launched inside
-- column left_out: VARCHAR, why no per-step number counts the step: incomplete (the recording lacks part of it) or warm-up; NULL when it counts
-- column partial: BOOLEAN, it is left out
WITH annotated AS (
    -- The same annotation may stand on several lanes, or in both categories.
    SELECT DISTINCT rank, try_cast(regexp_extract(name, '#(\d+)', 1) AS INTEGER) AS step, name, ts, "end"
    FROM slices
    WHERE side = 'host' AND cat IN ('user_annotation', 'cpu_op') AND is_step(name)
),
-- Ranks to look at rather than ranks to leave out: for none of them, no slice is read.
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
steps AS (SELECT rank AS lane, row_number() OVER (ORDER BY rank, ordinal) AS id, ts, "end", ordinal FROM host_steps),
calls AS (SELECT rank AS lane, id, ts, "end" FROM launches),
called AS (
    SELECT s.lane AS rank, s.ordinal, p.inside AS launch
    FROM interval_pairs(calls, steps) AS p JOIN steps AS s ON s.id = p.outside
),
launched AS (
    SELECT c.rank, c.ordinal, sum(l.device_ops) AS launched, min(l.device_ts) AS device_ts,
           max(l.device_end) AS device_end
    FROM called AS c JOIN launches AS l ON l.id = c.launch
    GROUP BY c.rank, c.ordinal
),
-- Work launched before the first step may still run when it begins. On Gaudi nothing links most transfers to their
-- launch: those that start inside the step belong to it.
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
-- A loop that ends before its recording does leaves a last step that has only begun.
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
           host_end - host_ts AS host_dur, lag(host_end - host_ts) OVER w AS host_dur_before
    FROM extended WINDOW w AS (PARTITION BY rank ORDER BY ordinal)
),
-- A last step with far less device work than the others may have lost the rest of it to the end of the recording.
suspects AS (
    SELECT b.rank, b.ordinal
    FROM bounded AS b
    JOIN (SELECT rank, median(launched) FILTER (ordinal <> last_launching) AS launched FROM bounded GROUP BY rank) AS others
        USING (rank)
    WHERE b.ordinal = b.last_launching AND b.ordinal > 0 AND b.launched < 0.8 * others.launched
),
-- When it ends with the same op as another step, and the work of its calls was recorded, it is whole and did less.
submitting AS (SELECT DISTINCT name FROM launches),
telling AS (
    SELECT rank, id, name, cat, ts FROM slices
    WHERE rank IN (SELECT rank FROM suspects) AND side = 'host'
        AND (cat = 'cpu_op' AND outermost AND NOT is_step(name) OR cat = 'runtime' AND name IN (SELECT name FROM submitting))
),
ending AS (
    SELECT h.rank, h.ordinal, arg_max(s.name, (s.ts, s.id)) FILTER (s.cat = 'cpu_op') AS op,
           count(*) FILTER (s.cat = 'runtime') AS calls
    FROM telling AS s ASOF JOIN host_steps AS h ON h.rank = s.rank AND s.ts >= h.ts
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
cut AS (SELECT rank, ordinal FROM suspects ANTI JOIN whole_suspects USING (rank, ordinal)),
-- Time of a step in which it compiles or starts up.
warming AS (
    SELECT b.rank, b.ordinal::INTEGER AS class, greatest(b.host_ts, c.ts) AS ts, least(b.host_end, c."end") AS "end"
    FROM (SELECT rank, ts, "end" FROM _compile_events UNION ALL SELECT rank, ts, "end" FROM start_up) AS c
    JOIN bounded AS b ON b.rank = c.rank AND b.step IS NOT NULL AND c.ts < b.host_end AND c."end" > b.host_ts
),
unsteady AS (
    SELECT u.rank, b.ordinal
    FROM interval_lengths(warming) AS u
    JOIN bounded AS b ON b.rank = u.rank AND b.ordinal = u.class WHERE u.ns > 0.05 * b.host_dur
),
judged AS (
    SELECT b.rank, step, b.ordinal, name, b.host_ts, b.host_end, ts,
           CASE WHEN on_device THEN greatest("end", ts) ELSE b.host_end END AS "end", launched,
           coalesce(count(*) OVER (PARTITION BY b.rank) > 1 AND CASE WHEN on_device
               THEN b.ordinal > last_launching OR c.ordinal IS NOT NULL
               ELSE last_op < b.host_ts AND host_dur < host_dur_before / 10 END, false) AS incomplete,
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
