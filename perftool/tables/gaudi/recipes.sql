-- One row per recipe (compiled Gaudi graph) that ran.
--
-- needs: device_ops, launches, steps
-- empty without: device_ops.recipe
-- column rank: INTEGER, distributed rank
-- column recipe: BIGINT, Synapse id of the recipe; 16 bit, so it wraps in long runs
-- column name: VARCHAR, name given by the bridge
-- column launches: BIGINT, how often it was launched
-- column first_step: INTEGER, step in which it first ran
-- column ts: BIGINT, first time it ran, in ns
-- column busy_ns: BIGINT, union of its device work over all lanes
-- column mme_ns: BIGINT, union of its MME work
-- column tpc_ns: BIGINT, union of its TPC work
-- column dma_ns: BIGINT, union of its DMA work
-- column kernels: BIGINT, names of distinct kernels in it
WITH work AS (
    SELECT d.*, arg(r.args, 'recipeName') AS recipe_name
    FROM device_ops AS d JOIN raw AS r ON r.rowid = d.id WHERE d.valid AND d.recipe IS NOT NULL
),
lanes AS (
    SELECT rank, recipe * 4 + CASE engine WHEN 'MME' THEN 1 WHEN 'TPC' THEN 2 ELSE 3 END AS class, ts, "end"
    FROM work
    UNION ALL SELECT rank, recipe * 4, ts, "end" FROM work
),
unions AS (
    SELECT rank, class // 4 AS recipe, class % 4 AS part, ns FROM interval_lengths(lanes)
),
busy AS (
    SELECT rank, recipe, max(ns) FILTER (part = 0) AS busy_ns, coalesce(max(ns) FILTER (part = 1), 0) AS mme_ns,
           coalesce(max(ns) FILTER (part = 2), 0) AS tpc_ns, coalesce(max(ns) FILTER (part = 3), 0) AS dma_ns
    FROM unions GROUP BY ALL
),
described AS (
    SELECT rank, recipe, first(recipe_name ORDER BY ts, recipe_name) AS name, min(ts) AS ts, count(DISTINCT name) AS kernels
    FROM work GROUP BY ALL
),
launched AS (SELECT rank, recipe, count(*) AS launches FROM launches WHERE recipe IS NOT NULL GROUP BY ALL)
SELECT d.rank, d.recipe, d.name, coalesce(l.launches, 0) AS launches, s.step AS first_step, d.ts,
       b.busy_ns, b.mme_ns, b.tpc_ns, b.dma_ns, d.kernels
FROM described AS d
JOIN busy AS b USING (rank, recipe)
LEFT JOIN launched AS l USING (rank, recipe)
ASOF LEFT JOIN steps AS s ON s.rank = d.rank AND d.ts >= s.ts
ORDER BY d.rank, b.busy_ns DESC, d.recipe
