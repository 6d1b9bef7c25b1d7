-- Where each step starts and ends once the device work it launched is counted in, and whether it is complete.
--
-- A step on a device lasts until the work it launched is done; the next step starts there. This is the rule of
-- PyTorch's TensorBoard plugin, so that its users find their numbers again. Without steps the whole recording
-- is one.
--
-- needs: slices, tracks, launches, _links, _device_work
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name; NULL when the recording has no steps
-- column ordinal: BIGINT, position of the step in the recording, from 0
-- column name: VARCHAR, name of the annotation
-- column host_ts: BIGINT, start of the annotation in ns
-- column host_end: BIGINT, end of the annotation in ns
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column launched: BIGINT, units of device work launched inside
-- column partial: BOOLEAN, the recording lacks part of the step
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
ending AS (
    SELECT h.rank, h.ordinal, arg_max(s.name, (s.ts, s.id)) FILTER (s.cat = 'cpu_op') AS op,
           count(*) FILTER (s.cat = 'runtime') AS calls
    FROM slices AS s ASOF JOIN host_steps AS h ON h.rank = s.rank AND s.ts >= h.ts
    WHERE s.rank IN (SELECT rank FROM suspects) AND s.ts < h."end" AND s.side = 'host'
        AND (s.cat = 'cpu_op' AND s.outermost AND NOT is_step(s.name)
             OR s.cat = 'runtime' AND s.name IN (SELECT name FROM launches))
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
cut AS (SELECT rank, ordinal FROM suspects ANTI JOIN whole_suspects USING (rank, ordinal))
SELECT b.rank, step, b.ordinal, name, b.host_ts, b.host_end, ts,
       CASE WHEN on_device THEN greatest("end", ts) ELSE b.host_end END AS "end", launched,
       coalesce(count(*) OVER (PARTITION BY b.rank) > 1 AND CASE WHEN on_device
           THEN b.ordinal > last_launching OR c.ordinal IS NOT NULL
           ELSE last_op < b.host_ts AND host_dur < host_dur_before / 10 END, false) AS partial
FROM bounded AS b LEFT JOIN last_ops USING (rank) LEFT JOIN cut AS c ON c.rank = b.rank AND c.ordinal = b.ordinal
