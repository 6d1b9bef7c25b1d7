-- One row per graph compilation in a trace. Events of one compiler, on any lanes, form one compilation if they are at
-- most 100 us apart.
--
-- needs: _compile_events, _step_bounds, device_ops, _recipe_parts
-- empty without: _compile_events or device_ops.recipe
-- column id: BIGINT, slices.id of the first event, NULL when none was recorded
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, step in which the compilation begins
-- column recipe: VARCHAR, what was compiled, when known
-- column reason: VARCHAR, always unknown, because traces do not state it
-- column source: VARCHAR, torch.compile, trace, or recipe name (a recipe that first appears late)
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns, NULL when unknown
-- column end: BIGINT, end in ns
WITH ordered AS (
    SELECT *, max("end") OVER (PARTITION BY rank, source ORDER BY ts, id
                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
    FROM _compile_events
),
numbered AS (
    SELECT *, sum((reach IS NULL OR ts > reach + 100000)::INTEGER)
                  OVER (PARTITION BY rank, source ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS compilation
    FROM ordered
),
traced AS (
    SELECT rank, source, first(id ORDER BY ts, id) AS id, max(recipe) AS recipe, min(ts) AS ts, max("end") AS "end"
    FROM numbered GROUP BY rank, source, compilation
),
-- If the first run of a recipe comes after the first step, the recipe was compiled (or loaded from disk) late, even if
-- the trace has no compile event.
named AS (
    SELECT d.rank, p.name AS recipe, min(d.ts) AS ts
    FROM device_ops AS d JOIN _recipe_parts AS p USING (id) WHERE p.name LIKE '%HabanaFusedOpLazy\_%' ESCAPE '\'
    GROUP BY ALL
),
first_steps AS (SELECT rank, min("end") AS "end" FROM _step_bounds WHERE step IS NOT NULL GROUP BY rank),
late AS (
    SELECT n.rank, n.recipe, n.ts FROM named AS n JOIN first_steps AS f USING (rank)
    WHERE n.ts > f."end" AND n.rank NOT IN (SELECT rank FROM traced WHERE source = 'trace')
),
every AS (
    SELECT rank, id, recipe, source, ts, "end" FROM traced
    UNION ALL SELECT rank, NULL, recipe, 'recipe name', ts, NULL FROM late
)
SELECT e.id, e.rank, s.step, e.recipe, 'unknown' AS reason, e.source, e.ts, e."end" - e.ts AS dur, e."end"
FROM every AS e
ASOF LEFT JOIN _step_bounds AS s ON s.rank = e.rank AND e.ts >= s.ts
