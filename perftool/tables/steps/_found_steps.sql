-- The detected steps of ranks without marked steps, from the first source of step_marks that is available: optimizer,
-- annotation or copies. This is a separate table because planning its query is slow, and most recordings mark their
-- steps.
--
-- needs: slices, roles, launches, _links, _device_work, _unmarked_ranks
-- empty without: _unmarked_ranks
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the annotation
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column source: VARCHAR, optimizer, annotation or copies
-- column calls: BIGINT, number of calls of this name in a step
WITH optimizing AS (
    SELECT rank, name, ts, "end", lead("end") OVER (PARTITION BY rank ORDER BY ts) AS next_end FROM slices
    WHERE rank IN (FROM _unmarked_ranks) AND side = 'host' AND cat IN ('user_annotation', 'cpu_op')
        AND name IN (SELECT name FROM roles WHERE role = 'optimizer_step')
),
passes AS (
    SELECT rank, ts FROM slices
    WHERE rank IN (SELECT rank FROM optimizing) AND side = 'host' AND cat = 'cpu_op' AND outermost
        AND name IN (SELECT name FROM roles WHERE role = 'backward')
),
-- A call ends a step if a backward pass follows before the next call ends. The backward pass may be inside that next
-- call, because Lightning passes a closure that runs it.
closing AS (
    SELECT o.rank, o.name, o.ts, o."end" FROM optimizing AS o ASOF LEFT JOIN passes AS p ON p.rank = o.rank AND o."end" <= p.ts
    WHERE o.next_end IS NULL OR p.ts < o.next_end OR o.rank NOT IN (SELECT rank FROM passes)
),
rarest AS (
    SELECT rank, arg_min(name, (n, -until)) AS name FROM (
        SELECT rank, name, count(*) AS n, max("end") AS until FROM closing GROUP BY rank, name HAVING count(*) >= 3)
    GROUP BY rank
),
-- Optimizers of the same class may take turns within a step, as in a GAN. Their calls then run different numbers of
-- ops, so a repeating pattern of these numbers shows how many calls make a step. The first calls are left out, because
-- they also allocate state.
numbered_ends AS (
    SELECT rank, name, ts, "end", row_number() OVER (PARTITION BY rank ORDER BY "end") - 1 AS place
    FROM closing SEMI JOIN rarest USING (rank, name)
),
updates AS (
    SELECT e.rank, e.place, count(*) AS ops
    FROM (SELECT rank, ts FROM slices WHERE rank IN (SELECT rank FROM rarest) AND side = 'host' AND cat = 'cpu_op' AND outermost) AS s
    ASOF JOIN numbered_ends AS e ON e.rank = s.rank AND s.ts >= e.ts WHERE s.ts < e."end" GROUP BY e.rank, e.place
),
-- Pair each update with the updates one to eight calls earlier.
earlier AS (
    SELECT rank, place + length AS place, length, ops FROM updates, (SELECT unnest(range(1, 9)) AS length) WHERE place >= length
),
cycles AS (
    SELECT u.rank, b.length FROM updates AS u JOIN earlier AS b USING (rank, place) WHERE place >= 2 * b.length GROUP BY u.rank, b.length
    HAVING count(*) >= greatest(4, 2 * b.length) AND count(*) FILTER (b.ops = u.ops) >= 0.9 * count(*)
),
cycle AS (SELECT rank, min(length) AS length FROM cycles GROUP BY rank),
begun AS (
    SELECT rank, min(ts) AS ts FROM slices
    WHERE rank IN (SELECT rank FROM rarest) AND side = 'host' AND cat IN ('cpu_op', 'user_annotation') GROUP BY rank
),
by_optimizer AS (
    SELECT e.rank, e.name, coalesce(lag(e."end") OVER (PARTITION BY e.rank ORDER BY e."end"), b.ts) AS ts, e."end", 'optimizer' AS source,
           coalesce(c.length, 1) AS calls
    FROM numbered_ends AS e JOIN begun AS b USING (rank) LEFT JOIN cycle AS c USING (rank)
    WHERE (e.place + 1) % coalesce(c.length, 1) = 0
),
-- The rest is for ranks without an optimizer, whose steps are detected from annotations or copies.
silent AS (SELECT rank FROM _unmarked_ranks EXCEPT SELECT rank FROM rarest),
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
best AS (SELECT rank, arg_min(source, (place, n, name)) AS source, arg_min(name, (place, n, name)) AS name FROM agreed GROUP BY rank)
SELECT rank, name, ts, "end", source, calls FROM by_optimizer
UNION ALL
SELECT c.rank, c.name, c.ts, c."end", c.source, 1 FROM checked AS c JOIN best AS b ON b.rank = c.rank AND b.source = c.source AND b.name = c.name
