-- Gaudi: which launch a unit of device work belongs to. The trace names the recipe on both sides but links neither.
--
-- A recipe's runs follow its launches in order. When as many runs as launches are seen they are paired by
-- position; at the edges of a recording, where one side lacks some, work belongs to the last launch before it.
--
-- needs: _device_work, _runtime, roles
-- column rank: INTEGER, distributed rank
-- column launch: BIGINT, host call (slices.id)
-- column work: BIGINT, unit of device work (slices.id)
WITH calls AS (
    SELECT id, rank, ts, recipe, row_number() OVER (PARTITION BY rank, recipe ORDER BY ts, id) AS ordinal
    FROM _runtime WHERE recipe > 0 AND name IN (SELECT name FROM roles WHERE role = 'recipe_launch')
),
work AS (
    SELECT id, rank, ts, "end", recipe, lag(recipe) OVER (PARTITION BY rank ORDER BY ts, id) AS recipe_before
    FROM _device_work WHERE set_aside IS NULL AND engine IS NOT NULL AND recipe > 0
),
-- A run of a recipe begins where the device changes to it. Back-to-back runs of one recipe count as one, and
-- then the counts differ.
runs AS (
    SELECT id, rank, ts, recipe,
           sum((recipe IS DISTINCT FROM recipe_before)::INTEGER)
               OVER (PARTITION BY rank, recipe ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS ordinal
    FROM work
),
counts AS (
    SELECT rank, recipe, c.n = r.n AS paired
    FROM (SELECT rank, recipe, count(*) AS n FROM calls GROUP BY ALL) AS c
    JOIN (SELECT rank, recipe, max(ordinal) AS n FROM runs GROUP BY ALL) AS r USING (rank, recipe)
)
SELECT r.rank, c.id AS launch, r.id AS work
FROM runs AS r
JOIN counts AS n ON n.rank = r.rank AND n.recipe = r.recipe AND n.paired
JOIN calls AS c ON c.rank = r.rank AND c.recipe = r.recipe AND c.ordinal = r.ordinal
UNION ALL
SELECT r.rank, c.id, r.id
FROM (SELECT * FROM runs SEMI JOIN (SELECT * FROM counts WHERE NOT paired) USING (rank, recipe)) AS r
ASOF JOIN calls AS c ON c.rank = r.rank AND c.recipe = r.recipe AND r.ts + clock_slack_ns() >= c.ts
