-- The device work that starts inside the window, by the innermost op or annotation that launched it. Work launched by a
-- captured graph, a recipe or directly by a step keeps its name on the device.
--
-- needs: device_ops, _device_work, ops, windows, matmuls, launches, roles, slices, recomputed_ops, _captured, _sparse_products
-- empty without: device_ops
-- column id: BIGINT, number of the row
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op, or of the kernel where no op launched it; calls of sliding-window attention end with " (window)", and matmuls with a sparse matrix with " (sparse)", because their shapes do not show their cost
-- column source: VARCHAR, op, graph, recipe or kernel: see op_efficiency
-- column engine: VARCHAR, device_ops.engine, NULL where the work runs on several engines
-- column input_dims: VARCHAR, ops.input_dims
-- column input_types: VARCHAR, ops.input_types
-- column concrete_inputs: VARCHAR, ops.concrete_inputs
-- column outer_dims: VARCHAR, ops.input_dims of the enclosing op, for the gradients of convolutions
-- column recomputed: BOOLEAN, whether this is an op that checkpointing runs again in the backward pass
-- column element_bytes: INTEGER, element size according to the kernels' names, because the types of ops on lists of tensors do not show it; NULL if no name shows it
-- column around: VARCHAR, for ops of a serving engine: the annotation around the call, which states the lengths of the sequences
-- column grids: VARCHAR, for ops of a serving engine: names and grids of a call's kernels, as JSON
-- column calls: BIGINT, number of calls that launched work; number of kernels where no op launched them
-- column kernel_ns: BIGINT, time of the work
-- column matrix_ns: BIGINT, the part of kernel_ns in kernels listed in matmuls
-- column tf32: BOOLEAN, whether matmuls of 32-bit operands run as TF32 (matmuls.tf32)
-- column transfer: BOOLEAN, whether something other than the device's memory limits the speed, as in collectives and in copies from or to other memory
WITH matrix AS (SELECT id, tf32 FROM matmuls),
transfers AS (SELECT id FROM _device_work WHERE transfer OR coalesce(direction, 'device_to_device') <> 'device_to_device'),
graphs AS (SELECT id FROM launches WHERE name IN (SELECT name FROM roles WHERE role = 'graph_launch')),
named AS (
    SELECT d.*, m.id IS NOT NULL AS matrix, coalesce(m.tf32, false) AS tf32, d.kind = 'collective' OR t.id IS NOT NULL AS transfer,
           -- Work that a step launches directly has no op.
           d.op IS NOT NULL AND NOT is_step(d.op_name) AND d.recipe IS NULL AND g.id IS NULL AS by_op,
           CASE WHEN by_op THEN 'op' WHEN g.id IS NOT NULL THEN 'graph' WHEN d.recipe IS NOT NULL THEN 'recipe' ELSE 'kernel' END AS source
    FROM device_ops AS d
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    LEFT JOIN matrix AS m ON m.id = d.id
    LEFT JOIN transfers AS t ON t.id = d.id
    LEFT JOIN graphs AS g ON g.id = d.launch
    WHERE d.valid AND d.kind <> 'wait'
),
-- A replay of a graph repeats the launches of its capture, so the nth kernel of a name in the replay is the nth of that
-- name in the capture. The capture trace must have as many kernels of the name as the replay, or a multiple of that
-- number (several captures).
numbered AS (
    SELECT id, launch, name, row_number() OVER (PARTITION BY launch, name ORDER BY ts, id) AS nth, count(*) OVER (PARTITION BY launch, name) AS times
    FROM named WHERE source = 'graph' AND EXISTS (FROM _captured)
),
replayed AS (
    SELECT n.id, n.launch, c.op, c.op_name FROM numbered AS n
    JOIN _captured AS c ON c.kernel = n.name AND c.nth = n.nth AND c.times % n.times = 0
),
calls AS (
    SELECT DISTINCT op, input_dims, input_types, concrete_inputs FROM _captured
    WHERE coalesce(input_dims, input_types, concrete_inputs) IS NOT NULL
),
-- For some ops of vLLM, only the annotation around the step and the grids of the kernels show the sizes.
batches AS (
    SELECT track, ts, "end", name FROM slices
    WHERE side = 'host' AND cat = 'user_annotation' AND regexp_matches(name, '^execute_.*context.*generation')
),
serving AS (
    SELECT d.rank, CASE WHEN d.by_op THEN d.op END AS op, g.op AS captured, g.launch,
           l.track, l.ts, json_object('name', d.name, 'grid', json_extract(r.args, '$.grid')) AS kernel,
           contains(coalesce(g.op_name, d.op_name), 'attention') AND contains(d.name, 'Sliding') AS windowed
    FROM named AS d LEFT JOIN replayed AS g ON g.id = d.id JOIN raw AS r ON r.rowid = d.id LEFT JOIN launches AS l ON l.id = d.launch
    WHERE (d.by_op OR g.op IS NOT NULL) AND coalesce(g.op_name, d.op_name) IN (
        SELECT op_name FROM (SELECT op_name FROM named UNION SELECT op_name FROM replayed)
        WHERE regexp_matches(op_name, '^vllm::(unified_attention|moe_forward)'))
),
serving_calls AS (
    SELECT s.rank, s.op, s.captured, s.launch, bool_or(s.windowed) AS windowed, min(CASE WHEN b."end" >= s.ts THEN b.name END) AS around,
           to_json(list_sort(list(DISTINCT s.kernel)))::VARCHAR AS grids
    FROM serving AS s ASOF LEFT JOIN batches AS b ON b.track = s.track AND s.ts >= b.ts
    GROUP BY s.rank, s.op, s.captured, s.launch
),
sizes AS (
    SELECT name, coalesce(try_cast(nullif(regexp_extract(name, 'OpaqueType<(\d+)', 1), '') AS INTEGER),
                          CASE regexp_extract(name, 'Functor<(float|double|c10::Half|c10::BFloat16)', 1)
                              WHEN 'float' THEN 4 WHEN 'double' THEN 8 WHEN 'c10::Half' THEN 2 WHEN 'c10::BFloat16' THEN 2 END) AS element_bytes
    FROM (SELECT DISTINCT name FROM named)
),
launched AS (
    SELECT d.rank, d.source, CASE WHEN d.by_op THEN d.op END AS op, g.op AS captured, g.launch,
           coalesce(g.op_name, CASE WHEN d.by_op THEN d.op_name ELSE d.name END) AS name,
           CASE WHEN min(d.engine) = max(d.engine) THEN min(d.engine) END AS engine, min(s.element_bytes) AS element_bytes,
           count(*) AS kernels, sum(d.dur)::BIGINT AS kernel_ns, coalesce(sum(d.dur) FILTER (d.matrix), 0)::BIGINT AS matrix_ns,
           bool_or(d.tf32) AS tf32, bool_or(d.transfer) AS transfer
    FROM named AS d LEFT JOIN replayed AS g ON g.id = d.id LEFT JOIN sizes AS s ON s.name = d.name
    GROUP BY d.rank, d.source, CASE WHEN d.by_op THEN d.op END, g.op, g.launch,
             coalesce(g.op_name, CASE WHEN d.by_op THEN d.op_name ELSE d.name END),
             -- Work that no op launched gets a row for each engine.
             CASE WHEN NOT d.by_op THEN d.engine END
),
outers AS (
    SELECT id, input_dims FROM ops
    WHERE id IN (SELECT o.parent FROM launched AS l JOIN ops AS o ON o.id = l.op WHERE contains(l.name, '_convolution_backward_'))
),
described AS (
    SELECT l.* EXCLUDE (name, element_bytes), l.name || CASE WHEN t.windowed THEN ' (window)' WHEN s.id IS NOT NULL THEN ' (sparse)' ELSE '' END AS name, t.around, t.grids,
           coalesce(o.input_dims, c.input_dims) AS input_dims, coalesce(o.input_types, c.input_types) AS input_types,
           coalesce(o.concrete_inputs, c.concrete_inputs) AS concrete_inputs, r.op IS NOT NULL AS recomputed,
           p.input_dims AS outer_dims, CASE WHEN coalesce(l.op, l.captured) IS NOT NULL THEN l.element_bytes END AS element_bytes
    FROM launched AS l LEFT JOIN ops AS o ON o.id = l.op LEFT JOIN recomputed_ops AS r ON r.op = l.op
    LEFT JOIN calls AS c ON c.op = l.captured
    LEFT JOIN serving_calls AS t ON t.rank = l.rank AND t.op IS NOT DISTINCT FROM l.op AND t.captured IS NOT DISTINCT FROM l.captured
        AND t.launch IS NOT DISTINCT FROM l.launch
    LEFT JOIN _sparse_products AS s ON s.id = l.op
    LEFT JOIN outers AS p ON p.id = CASE WHEN contains(l.name, '_convolution_backward_') THEN o.parent END
)
SELECT row_number() OVER (ORDER BY rank, name, source, engine, input_dims, input_types, concrete_inputs, outer_dims, recomputed, element_bytes, around, grids) AS id,
       rank, name, source, engine, input_dims, input_types, concrete_inputs, outer_dims, recomputed, element_bytes, around, grids,
       -- Each row of the subquery described is one call if its op is known.
       sum(CASE WHEN source = 'op' OR captured IS NOT NULL THEN 1 ELSE kernels END)::BIGINT AS calls,
       sum(kernel_ns)::BIGINT AS kernel_ns, sum(matrix_ns)::BIGINT AS matrix_ns, bool_or(tf32) AS tf32, bool_or(transfer) AS transfer
FROM described
GROUP BY rank, name, source, engine, input_dims, input_types, concrete_inputs, outer_dims, recomputed, element_bytes, around, grids
