-- The kernels that a rank launched in its steps but that its recording lacks. The device seems idle while they run.
--
-- A wrapper and its driver call may share one id, so a launch counts as lost only if no device work has that id. On
-- Gaudi, launches have no ids, but they and their work name the recipe. Each launch runs all kernels of the recipe, so
-- if its most frequent kernel was recorded n times, its launches after the nth count as lost. If a rank's kernels have
-- neither ids nor recipes, nothing can be compared.
--
-- The ratio of the median step is used, because the end of a recording may truncate the work of its last step.
--
-- needs: _step_bounds, roles, _runtime, _device_work, _stream_captures, _recipe_calls, _recipe_parts
-- empty without: _device_work
-- column rank: INTEGER, distributed rank with device work
-- column launches: BIGINT, number of kernel launches in complete steps, apart from graph capture; on Gaudi, of recipes
-- column lost: BIGINT, number of these launches without device work
-- column ratio: DOUBLE, share of the kernel launches without device work, in the median complete step that launches kernels
-- column many: BOOLEAN, whether this share is so large that the device's state is unknown
WITH captured AS (SELECT *, 0 AS class FROM _stream_captures),
captures AS (FROM interval_union(captured)),
launching AS (
    SELECT rank, ts, correlation FROM _runtime
    WHERE correlation IS NOT NULL AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'kernel_launch')
),
calls AS (
    FROM launching WHERE rank NOT IN (SELECT rank FROM captures)
    UNION ALL
    SELECT c.* FROM (FROM launching WHERE rank IN (SELECT rank FROM captures)) AS c
    ASOF LEFT JOIN captures AS g ON g.rank = c.rank AND c.ts >= g.ts WHERE g.ts IS NULL OR c.ts >= g."end"
),
answered AS (SELECT DISTINCT rank, correlation, true AS found FROM _device_work WHERE correlation IS NOT NULL),
-- Ranks whose recording shows copies but not a single kernel.
without_kernels AS (SELECT rank FROM _device_work GROUP BY rank HAVING count_if(cat = 'kernel') = 0),
recorded AS (
    SELECT rank, recipe, max(runs) AS runs
    FROM (SELECT p.rank, p.recipe, count(*) AS runs FROM _device_work AS w JOIN _recipe_parts AS p USING (id) GROUP BY p.rank, p.recipe, w.name)
    GROUP BY rank, recipe
),
recipe_launches AS (
    SELECT c.rank, p.recipe, c.ts, row_number() OVER (PARTITION BY c.rank, p.recipe ORDER BY c.ts, c.id) AS ordinal
    FROM _recipe_calls AS c JOIN _recipe_parts AS p USING (id)
    WHERE c.rank IN (SELECT rank FROM recorded UNION FROM without_kernels)
),
judged AS (
    SELECT c.rank, c.ts, a.found IS NULL AS lost FROM calls AS c LEFT JOIN answered AS a ON a.rank = c.rank AND a.correlation = c.correlation
    WHERE c.rank IN (SELECT rank FROM answered UNION FROM without_kernels)
    UNION ALL
    SELECT l.rank, l.ts, l.ordinal > coalesce(r.runs, 0) FROM recipe_launches AS l LEFT JOIN recorded AS r USING (rank, recipe)
),
counted AS (
    SELECT s.rank, s.host_ts, count(*) AS calls, count(*) FILTER (j.lost) AS lost
    FROM judged AS j
    ASOF JOIN (SELECT rank, host_ts, host_end FROM _step_bounds WHERE NOT partial) AS s ON s.rank = j.rank AND j.ts >= s.host_ts
    WHERE j.ts < s.host_end
    GROUP BY s.rank, s.host_ts
)
-- In all healthy recordings that we have, each launch of the median step has a kernel. The limit for comparing runs
-- is the same (MOST_LOST_KERNELS in perftool/engine/report/complete_steps.py).
SELECT rank, sum(calls)::BIGINT AS launches, sum(lost)::BIGINT AS lost, median(counted.lost / calls) AS ratio, ratio > 0.05 AS many
FROM counted GROUP BY rank
