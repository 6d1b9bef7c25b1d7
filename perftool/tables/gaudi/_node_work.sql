-- Gaudi: the device work whose events name their node in a recipe. The graph compiler numbers and names the nodes; a
-- node runs on many lanes of an engine at once.
--
-- needs: device_ops, _recipe_parts
-- empty without: device_ops.recipe
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, engine lane (tracks.id)
-- column graph: BIGINT, number of the recipe in the run (_recipe_parts); recipes may share an id
-- column recipe: BIGINT, id of the recipe
-- column recipe_name: VARCHAR, name of the recipe
-- column node: VARCHAR, name of the node in the compiled graph, else the name of the work
-- column node_id: BIGINT, number of the node in its graph, NULL where it is not recorded
-- column engine: VARCHAR, device_ops.engine
-- column op: VARCHAR, operation of the node (device_ops.name)
-- column dtype: VARCHAR, device_ops.dtype
-- column original_ops: VARCHAR, ops of the model that the compiler fused into the node, when recorded
-- column launch: BIGINT, device_ops.launch
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH work AS (
    SELECT d.* EXCLUDE (recipe), p.graph, p.recipe, p.name AS recipe_name,
           json_extract_string(r.args, ['$.EventName', '$."Unique Node ID"', '$."Original Nodes"']) AS a
    FROM device_ops AS d JOIN _recipe_parts AS p USING (id) JOIN raw AS r ON r.rowid = d.id
    WHERE d.valid AND d.engine <> 'PDMA'
)
SELECT id, rank, track, graph, recipe, recipe_name, coalesce(nullif(a[1], ''), name::VARCHAR) AS node,
       try_cast(a[2] AS BIGINT) AS node_id, engine, name::VARCHAR AS op, dtype, nullif(a[3], '') AS original_ops, launch, ts, "end"
FROM work
