-- The recipe of each launch and each unit of device work of a Gaudi. Synapse has only 8,190 recipe ids, so two recipes
-- may share an id. Their names distinguish them, or their handles if all events with the id have a handle.
--
-- needs: _device_work, _recipe_calls
-- empty without: _device_work.recipe
-- column id: BIGINT, launch or unit of device work (slices.id)
-- column rank: INTEGER, distributed rank
-- column graph: BIGINT, number of the recipe in the run
-- column recipe: BIGINT, Synapse's id of the recipe
-- column name: VARCHAR, name of the recipe, NULL when it has no name
WITH stated AS (
    SELECT w.id, w.rank, w.recipe, list_transform(json_extract_string(r.args, ['$.recipeName', '$.recipeHandle']), lambda x: short_name(x)) AS a
    FROM _device_work AS w JOIN raw AS r ON r.rowid = w.id WHERE w.engine IS NOT NULL AND w.recipe > 0
),
parts AS (
    SELECT id, rank, recipe, nullif(a[1], '') AS name, nullif(a[2], '') AS handle FROM stated
    UNION ALL
    -- If a call does not state the id, its handle determines it.
    SELECT c.id, c.rank, coalesce(c.recipe, h.recipe), c.name, c.handle
    FROM _recipe_calls AS c
    LEFT JOIN (SELECT rank, a[2] AS handle, min(recipe) AS recipe FROM stated WHERE a[2] <> '' GROUP BY rank, a[2]) AS h
        ON h.rank = c.rank AND h.handle = c.handle AND c.recipe IS NULL
    WHERE coalesce(c.recipe, h.recipe) IS NOT NULL
),
ids AS (
    SELECT rank, recipe, count(DISTINCT name) = 1 AS one_name, min(name) AS name, count(handle) = count(*) AS by_handle
    FROM parts GROUP BY rank, recipe
),
identified AS (
    SELECT p.id, p.rank, p.recipe, CASE WHEN i.one_name THEN i.name ELSE p.name END AS name,
           CASE WHEN i.by_handle THEN p.handle END AS handle
    FROM parts AS p JOIN ids AS i USING (rank, recipe)
),
recipes AS (
    SELECT *, row_number() OVER (ORDER BY rank, recipe, name, handle) AS graph
    FROM (SELECT DISTINCT rank, recipe, name, handle FROM identified)
)
SELECT i.id, i.rank, r.graph, i.recipe, i.name
FROM identified AS i
JOIN recipes AS r ON r.rank = i.rank AND r.recipe = i.recipe
    AND r.name IS NOT DISTINCT FROM i.name AND r.handle IS NOT DISTINCT FROM i.handle
