-- One row per step of a rank on its host, as marked in the recording or as detected. The first available source of a
-- rank, in this order, counts, and the others are not searched:
--
-- iteration: the iterations of a serving engine. One lasts until the next one starts, if that one generates for
-- waiting requests.
-- profiler: the profiler's own annotations (ProfilerStep#).
-- optimizer: a step ends with a call of the optimizer that no other call follows before the next backward pass. Of
-- several optimizers it is the one that is called least often.
-- annotation: the outermost annotation that recurs least often; a step lasts until its next one.
-- copies: a step begins with copies of inputs to the device. Later layers of a model look like earlier ones, but none of
-- them copies inputs from the host and waits for a result.
--
-- If nothing is marked, steps are detected only if there are three, and four fifths of them agree; for the last two
-- sources, launches must also be the same, and lengths within a half of the median.
--
-- needs: slices, tracks, roles, launches, _links, _device_work, _iteration_marks
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number in the step's name, or its position in the recording, from 0
-- column name: VARCHAR, name of the annotation, or step and its number
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column source: VARCHAR, iteration, profiler, optimizer, annotation or copies
-- column confidence: VARCHAR, high if the program itself marks the end of a step, else medium
WITH annotated AS (
    -- The same annotation may occur on several lanes, or in both categories, at slightly different times. Steps follow
    -- each other: an interval that overlaps earlier steps for more than half of its length is not another step.
    SELECT rank, try_cast(regexp_extract(name, '#(\d+)', 1) AS INTEGER) AS step, name, ts, "end" FROM (
        SELECT rank, name, ts, "end",
               max("end") OVER (PARTITION BY rank ORDER BY ts, "end" DESC, name
                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
        FROM (SELECT DISTINCT rank, name, ts, "end" FROM slices
              WHERE side = 'host' AND cat IN ('user_annotation', 'cpu_op') AND is_step(name)
                  AND rank NOT IN (SELECT rank FROM _iteration_marks)))
    WHERE reach IS NULL OR reach - ts <= ("end" - ts) / 2
),
-- A list of ranks to include, not to exclude: when it is empty, no slice is read.
unmarked AS (SELECT rank FROM tracks EXCEPT SELECT rank FROM annotated EXCEPT SELECT rank FROM _iteration_marks),
optimizing AS (
    SELECT rank, name, ts, "end", lead(ts) OVER (PARTITION BY rank ORDER BY ts) AS next_ts FROM slices
    WHERE rank IN (FROM unmarked) AND side = 'host' AND cat IN ('user_annotation', 'cpu_op')
        AND name IN (SELECT name FROM roles WHERE role = 'optimizer_step')
),
passes AS (
    SELECT rank, ts FROM slices
    WHERE rank IN (SELECT rank FROM optimizing) AND side = 'host' AND cat = 'cpu_op' AND outermost
        AND name IN (SELECT name FROM roles WHERE role = 'backward')
),
closing AS (
    SELECT o.rank, o.name, o."end" FROM optimizing AS o ASOF LEFT JOIN passes AS p ON p.rank = o.rank AND o."end" <= p.ts
    WHERE o.next_ts IS NULL OR p.ts < o.next_ts OR o.rank NOT IN (SELECT rank FROM passes)
),
rarest AS (
    SELECT rank, arg_min(name, (n, -until)) AS name FROM (
        SELECT rank, name, count(*) AS n, max("end") AS until FROM closing GROUP BY rank, name HAVING count(*) >= 3)
    GROUP BY rank
),
begun AS (
    SELECT rank, min(ts) AS ts FROM slices
    WHERE rank IN (SELECT rank FROM rarest) AND side = 'host' AND cat IN ('cpu_op', 'user_annotation') GROUP BY rank
),
by_optimizer AS (
    SELECT c.rank, c.name, coalesce(lag(c."end") OVER (PARTITION BY c.rank ORDER BY c."end"), b.ts) AS ts, c."end", 'optimizer' AS source
    FROM closing AS c JOIN rarest AS r ON r.rank = c.rank AND r.name = c.name JOIN begun AS b ON b.rank = c.rank
),
-- The rest detects steps whose ends are not marked.
silent AS (SELECT rank FROM unmarked EXCEPT SELECT rank FROM rarest),
annotations AS (
    SELECT rank, name, ts, lead(ts) OVER (PARTITION BY rank, track, name ORDER BY ts) AS "end" FROM slices
    WHERE rank IN (FROM silent) AND side = 'host' AND cat = 'user_annotation' AND outermost
        AND name NOT IN (SELECT name FROM roles WHERE role IN ('dataloader', 'process_group', 'collective', 'optimizer'))
),
works AS (SELECT rank, ts, row_number() OVER (PARTITION BY rank ORDER BY ts, id) AS number FROM launches WHERE rank IN (FROM silent)),
copying AS (
    SELECT l.rank, l.ts, w.number, w.number - lag(w.number) OVER (PARTITION BY l.rank ORDER BY l.ts) AS since
    FROM (SELECT DISTINCT l.rank, l.ts FROM _device_work AS d JOIN _links AS k ON k.work = d.id JOIN launches AS l ON l.id = k.launch
          WHERE d.direction = 'host_to_device' AND l.rank IN (FROM silent)) AS l
    JOIN works AS w ON w.rank = l.rank AND w.ts = l.ts
),
by_copies AS (
    SELECT rank, 'copies of inputs' AS name, ts, lead(ts) OVER (PARTITION BY rank ORDER BY ts) AS "end" FROM copying
    WHERE since IS NULL OR since > 1
),
candidates AS (
    SELECT *, 1 AS place, 'annotation' AS source FROM annotations WHERE "end" IS NOT NULL
    UNION ALL SELECT *, 2, 'copies' FROM by_copies WHERE "end" IS NOT NULL
),
counted AS (
    SELECT c.*, coalesce(e.number, 0) - coalesce(b.number, 0) AS launches
    FROM candidates AS c
    ASOF LEFT JOIN works AS b ON b.rank = c.rank AND c.ts > b.ts
    ASOF LEFT JOIN works AS e ON e.rank = c.rank AND c."end" > e.ts
),
waits AS (
    SELECT rank, ts FROM slices WHERE rank IN (SELECT rank FROM counted WHERE source = 'copies') AND side = 'host'
        AND name IN (SELECT name FROM roles WHERE role IN ('wait', 'blocking_copy', 'scalar_read'))
),
checked AS (
    SELECT c.*, c.source <> 'copies' OR coalesce(w.ts < c."end", false) AS ends_in_wait,
           median(c.launches) OVER g AS usual, median(c."end" - c.ts) OVER g AS length
    FROM counted AS c ASOF LEFT JOIN waits AS w ON w.rank = c.rank AND c.ts <= w.ts
    WINDOW g AS (PARTITION BY c.rank, c.source, c.name)
),
agreed AS (
    SELECT rank, place, source, name, count(*) AS n FROM checked GROUP BY rank, place, source, name
    HAVING n >= 3 AND min(usual) >= 5 AND count(*) FILTER (launches = usual) >= 0.8 * n AND count(*) FILTER (ends_in_wait) >= 0.8 * n
        AND count(*) FILTER ("end" - ts BETWEEN 0.5 * length AND 1.5 * length) >= 0.8 * n
),
best AS (SELECT rank, arg_min(source, (place, n, name)) AS source, arg_min(name, (place, n, name)) AS name FROM agreed GROUP BY rank),
found AS (
    SELECT rank, name, ts, "end", source FROM by_optimizer
    UNION ALL
    SELECT c.rank, c.name, c.ts, c."end", c.source FROM checked AS c JOIN best AS b ON b.rank = c.rank AND b.source = c.source AND b.name = c.name
)
SELECT rank, step, name, ts, "end", 'profiler' AS source, 'high' AS confidence FROM annotated
UNION ALL
SELECT rank, iteration, phase || ' ' || iteration, ts, until, 'iteration', 'high' FROM _iteration_marks
UNION ALL
SELECT rank, row_number() OVER w - 1, 'step ' || (row_number() OVER w - 1), ts, "end", source,
       CASE source WHEN 'optimizer' THEN 'high' ELSE 'medium' END
FROM found WINDOW w AS (PARTITION BY rank ORDER BY ts)
