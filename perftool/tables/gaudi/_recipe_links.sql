-- Gaudi: which launch a unit of device work belongs to. The trace names the recipe on both sides but links neither.
--
-- A recipe's runs follow its launches in order. When as many runs as launches are seen they are paired by
-- position. Where one side lacks some, at the edges of a recording or because the profiler dropped them, launches are
-- counted back from the last one by their numbers, and runs from the last run: all is done when a recording ends. Where
-- that does not fit, work belongs to the last launch before it.
--
-- needs: _device_work, _runtime, roles
-- empty without: roles.role=recipe_launch, _device_work.recipe
-- column rank: INTEGER, distributed rank
-- column launch: BIGINT, host call (slices.id)
-- column work: BIGINT, unit of device work (slices.id)
WITH numbered AS (
    SELECT id, rank, ts, recipe, row_number() OVER (PARTITION BY rank, recipe ORDER BY ts, id) AS ordinal,
           try_cast(regexp_extract(name, 'seqId[: ]([0-9]+)', 1) AS BIGINT) AS seq
    FROM _runtime WHERE recipe > 0 AND name IN (SELECT name FROM roles WHERE role = 'recipe_launch')
),
calls AS (SELECT *, max(seq) OVER (PARTITION BY rank) - seq AS back FROM numbered),
work AS (
    SELECT id, rank, ts, "end", recipe,
           lag(recipe) OVER (PARTITION BY rank ORDER BY ts, id) IS DISTINCT FROM recipe AS begins
    FROM _device_work WHERE set_aside IS NULL AND engine IS NOT NULL AND recipe > 0
),
-- A run of a recipe begins where the device changes to it. Back-to-back runs of one recipe count as one, and
-- then the counts differ.
placed AS (
    SELECT id, rank, ts, recipe,
           sum(begins::INTEGER) OVER (PARTITION BY rank, recipe ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS ordinal,
           sum(begins::INTEGER) OVER (PARTITION BY rank ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS place
    FROM work
),
runs AS (SELECT *, max(place) OVER (PARTITION BY rank) - place AS back FROM placed),
counts AS (
    SELECT rank, recipe, c.n = r.n AS paired
    FROM (SELECT rank, recipe, count(*) AS n FROM calls GROUP BY ALL) AS c
    JOIN (SELECT rank, recipe, max(ordinal) AS n FROM runs GROUP BY ALL) AS r USING (rank, recipe)
),
-- Every launch has its run from the end: of its recipe, and not before it.
aligned AS (
    SELECT c.rank
    FROM calls AS c LEFT JOIN (SELECT rank, back, min(recipe) AS recipe, min(ts) AS ts FROM runs GROUP BY rank, back) AS r
        ON r.rank = c.rank AND r.back = c.back
    GROUP BY c.rank
    HAVING bool_and(coalesce(r.recipe = c.recipe AND r.ts + clock_slack_ns() >= c.ts, false))
),
rest AS (SELECT * FROM runs SEMI JOIN (SELECT * FROM counts WHERE NOT paired) USING (rank, recipe))
SELECT r.rank, c.id AS launch, r.id AS work
FROM runs AS r
JOIN counts AS n ON n.rank = r.rank AND n.recipe = r.recipe AND n.paired
JOIN calls AS c ON c.rank = r.rank AND c.recipe = r.recipe AND c.ordinal = r.ordinal
UNION ALL
SELECT r.rank, c.id, r.id
FROM (SELECT * FROM rest SEMI JOIN aligned USING (rank)) AS r JOIN calls AS c ON c.rank = r.rank AND c.back = r.back
UNION ALL
SELECT r.rank, c.id, r.id
FROM (SELECT * FROM rest ANTI JOIN aligned USING (rank)) AS r
ASOF JOIN calls AS c ON c.rank = r.rank AND c.recipe = r.recipe AND r.ts + clock_slack_ns() >= c.ts
