-- One row per recipe (compiled Gaudi graph) that ran. Two recipes may share an id; then their names or handles differ.
--
-- needs: device_ops, launches, steps, _recipe_parts
-- empty without: device_ops.recipe
-- column rank: INTEGER, distributed rank
-- column recipe: BIGINT, Synapse's id of the recipe, which another recipe may share
-- column name: VARCHAR, name given by the bridge, NULL when the trace shows none
-- column launches: BIGINT, number of launches
-- column first_step: INTEGER, step in which the recipe first ran
-- column ts: BIGINT, time when the recipe first ran, in ns
-- column busy_ns: BIGINT, time while any lane works for the recipe
-- column mme_ns: BIGINT, time while the MME works for the recipe
-- column tpc_ns: BIGINT, time while the TPC works for the recipe
-- column dma_ns: BIGINT, time while other engines, such as DMA, work for the recipe
-- column kernels: BIGINT, number of distinct kernel names in the recipe
-- column kernel_names: VARCHAR[], the names of its kernels in alphabetical order, with # for generated numbers
WITH work AS (
    SELECT d.rank, d.name, d.engine, d.ts, d."end", p.graph, p.recipe, p.name AS recipe_name
    FROM device_ops AS d JOIN _recipe_parts AS p USING (id) WHERE d.valid
),
lanes AS (
    SELECT rank, graph * 4 + CASE engine WHEN 'MME' THEN 1 WHEN 'TPC' THEN 2 ELSE 3 END AS class, ts, "end"
    FROM work
    UNION ALL SELECT rank, graph * 4, ts, "end" FROM work
),
unions AS (
    SELECT class // 4 AS graph, class % 4 AS part, ns FROM interval_lengths(lanes)
),
busy AS (
    SELECT graph, max(ns) FILTER (part = 0) AS busy_ns, coalesce(max(ns) FILTER (part = 1), 0) AS mme_ns,
           coalesce(max(ns) FILTER (part = 2), 0) AS tpc_ns, coalesce(max(ns) FILTER (part = 3), 0) AS dma_ns
    FROM unions GROUP BY graph
),
described AS (
    SELECT rank, graph, min(recipe) AS recipe, min(recipe_name) AS name, min(ts) AS ts, count(DISTINCT name) AS kernels,
           list_sort(list(DISTINCT regexp_replace(name, '0x[0-9a-f]+(_\d+)?', '#', 'gi'))) AS kernel_names
    FROM work GROUP BY rank, graph
),
launched AS (SELECT p.graph, count(*) AS launches FROM launches AS l JOIN _recipe_parts AS p USING (id) GROUP BY p.graph)
SELECT d.rank, d.recipe, d.name, coalesce(l.launches, 0) AS launches, s.step AS first_step, d.ts,
       b.busy_ns, b.mme_ns, b.tpc_ns, b.dma_ns, d.kernels, d.kernel_names
FROM described AS d
JOIN busy AS b USING (graph)
LEFT JOIN launched AS l USING (graph)
ASOF LEFT JOIN steps AS s ON s.rank = d.rank AND d.ts >= s.ts
ORDER BY d.rank, b.busy_ns DESC, d.recipe, d.name
