-- Gaudi: one row per node of a recipe that ran, over all its runs, with data from the graph compiler (graph_nodes) and
-- Intel's trace analyzer.
--
-- A node of the trace matches a node of a compiled graph if they have the same recipe, name and engine, and the same
-- number if both have one.
--
-- absent: the input does not identify the nodes that the device ran; a trace with hardware lanes, the profiler's CSV or JSON, and *_analyzed_nodes.csv do
-- needs: node_runs, _node_work, graph_nodes, analyzed_nodes, known_devices, device_facts
-- empty without: _node_work or analyzed_nodes
-- column rank: INTEGER, distributed rank
-- column graph: BIGINT, number of the recipe in the run; recipes may share an id
-- column recipe: BIGINT, id of the recipe
-- column recipe_name: VARCHAR, name of the recipe
-- column node: VARCHAR, name of the node in the compiled graph
-- column node_id: BIGINT, number of the node in its graph
-- column engine: VARCHAR, MME, TPC, DMA, NIC ...
-- column op: VARCHAR, operation of the node
-- column dtype: VARCHAR, data type, as the input writes it
-- column input_shapes: VARCHAR, shapes of its inputs, the slowest dimension first
-- column output_shapes: VARCHAR, shapes of its results, the slowest dimension first
-- column ops: VARCHAR, the ops that the compiler fused into the node
-- column runs: BIGINT, number of runs
-- column ts: BIGINT, start of the longest run in ns
-- column dur: BIGINT, duration of the longest run in ns
-- column span_ns: BIGINT, total time of the runs, each from its first start to its last end
-- column active_ns: BIGINT, time while any lane works on the node
-- column exposed_ns: BIGINT, the part of active_ns that is not hidden behind another compute engine
-- column activations: BIGINT, number of pieces of work
-- column lanes: BIGINT, largest number of lanes of a run
-- column min_engine_ns: BIGINT, busy time of the least busy lane of a run, summed over the runs
-- column max_engine_ns: BIGINT, busy time of the busiest lane of a run, summed over the runs
-- column avg_engine_ns: DOUBLE, mean busy time of a lane of a run, summed over the runs
-- column parallel_share: DOUBLE, active_ns / span_ns
-- column expected_ns: BIGINT, the compiler's estimate of the time of all runs
-- column expected_ratio: DOUBLE, span_ns / expected_ns
-- column utilisation: DOUBLE, share of MME cycles that compute, as estimated by the compiler
-- column strategy: VARCHAR, how the MME computes the node
-- column flops: BIGINT, operations of one run
-- column bytes: BIGINT, bytes of device memory that one run reads and writes
-- column tflops: DOUBLE, achieved TFLOP/s
-- column mfu: DOUBLE, tflops as a share of the device's peak rate for the type
-- column roofline_ratio: DOUBLE, time at the device's peak rate or at its memory bandwidth (the longer of the two) / span_ns
WITH ran AS (
    SELECT rank, graph, min(recipe) AS recipe, min(recipe_name) AS recipe_name, node, node_id, engine, first(op ORDER BY ts, run) AS op, first(dtype ORDER BY ts, run) AS dtype,
           count(DISTINCT execution) AS runs, arg_max(ts, (dur, -ts)) AS ts, max(dur) AS dur, sum(dur)::BIGINT AS span_ns,
           sum(active_ns)::BIGINT AS active_ns, sum(exposed_ns)::BIGINT AS exposed_ns, sum(activations)::BIGINT AS activations,
           max(lanes) AS lanes, sum(min_engine_ns)::BIGINT AS min_engine_ns, sum(max_engine_ns)::BIGINT AS max_engine_ns,
           sum(avg_engine_ns) AS avg_engine_ns
    FROM node_runs GROUP BY rank, graph, node, node_id, engine
),
original AS (SELECT graph, node, engine, min(original_ops) AS ops FROM _node_work GROUP BY graph, node, engine),
analyzed AS (
    SELECT rank, node, engine, max(input_shapes) AS input_shapes, max(output_shapes) AS output_shapes, max(dtype) AS dtype,
           max(expected_ns) AS expected_ns, max(utilisation) AS utilisation, max(strategy) AS strategy
    FROM analyzed_nodes GROUP BY ALL
),
-- Two graphs with the same id and name may contain the same node; then the trace does not show which of them ran. If
-- the node has different shapes or kernels in the two graphs, it is left out.
compiled AS (
    SELECT rank, recipe, recipe_name, node, node_id, engine, min(guid) AS guid, min(dtype) AS dtype, min(input_shapes) AS input_shapes,
           min(output_shapes) AS output_shapes, min(flops) AS flops, min(bytes) AS bytes, min(expected_cycles) AS expected_cycles,
           min(expected_dma_ns) AS expected_dma_ns, min(utilisation) AS utilisation, min(strategy) AS strategy, min(ops) AS ops
    FROM graph_nodes GROUP BY rank, recipe, recipe_name, node, node_id, engine
    HAVING count(DISTINCT (input_shapes, output_shapes, guid)) = 1
),
matched AS (
    SELECT r.*, g.guid, g.dtype AS graph_dtype, g.input_shapes, g.output_shapes, g.flops, g.bytes, g.expected_cycles,
           g.expected_dma_ns, g.utilisation, g.strategy, g.ops
    FROM ran AS r
    LEFT JOIN compiled AS g
        ON coalesce(g.rank = r.rank, true) AND g.node = r.node AND g.engine = r.engine AND (g.recipe = r.recipe OR r.recipe IS NULL)
           AND coalesce(g.recipe_name = r.recipe_name, true) AND coalesce(g.node_id = r.node_id, true)
    QUALIFY row_number() OVER (PARTITION BY r.rank, r.graph, r.node, r.node_id, r.engine ORDER BY g.recipe_name, g.recipe, g.node_id) = 1
),
clocks AS (SELECT device, max(value) AS hz FROM device_facts WHERE fact = 'matrix_clock' GROUP BY device),
rates AS (
    SELECT device, split_part(fact, ' peak ', 2) AS dtype, max(value) AS rate FROM device_facts WHERE fact LIKE 'matrix peak %' GROUP BY ALL
),
bandwidths AS (SELECT device, max(value) AS rate FROM device_facts WHERE fact = 'memory_bandwidth' GROUP BY device),
described AS (
    SELECT m.*, coalesce(m.graph_dtype, a.dtype, m.dtype) AS known_dtype, coalesce(m.input_shapes, a.input_shapes) AS known_inputs,
           coalesce(m.output_shapes, a.output_shapes) AS known_outputs, coalesce(m.ops, o.ops) AS known_ops,
           coalesce(m.utilisation, a.utilisation) AS known_utilisation, coalesce(m.strategy, a.strategy) AS known_strategy,
           coalesce(1e9 * m.expected_cycles / c.hz, m.expected_dma_ns, a.expected_ns) AS expected_one_ns,
           1e9 * m.flops / p.rate AS compute_ns, 1e9 * m.bytes / b.rate AS memory_ns
    FROM matched AS m
    LEFT JOIN original AS o ON o.graph = m.graph AND o.node = m.node AND o.engine = m.engine
    LEFT JOIN analyzed AS a ON coalesce(a.rank = m.rank, true) AND a.node = m.node AND a.engine = m.engine
    LEFT JOIN known_devices AS k ON k.rank = m.rank
    LEFT JOIN clocks AS c ON c.device = k.device AND m.engine = 'MME'
    LEFT JOIN bandwidths AS b ON b.device = k.device
    LEFT JOIN rates AS p ON p.device = k.device AND p.dtype = node_dtype(coalesce(m.graph_dtype, m.dtype)) AND m.engine = 'MME'
)
SELECT rank, graph, recipe, recipe_name, node, node_id, engine, op, known_dtype AS dtype, known_inputs AS input_shapes,
       known_outputs AS output_shapes, known_ops AS ops, runs, ts, dur, span_ns, active_ns, exposed_ns, activations, lanes,
       min_engine_ns, max_engine_ns, avg_engine_ns, active_ns / nullif(span_ns, 0) AS parallel_share,
       round(expected_one_ns * runs)::BIGINT AS expected_ns, span_ns / nullif(expected_one_ns * runs, 0) AS expected_ratio,
       known_utilisation AS utilisation, known_strategy AS strategy, flops, bytes,
       flops * runs / nullif(span_ns, 0) / 1e3 AS tflops, compute_ns * runs / nullif(span_ns, 0) AS mfu,
       CASE WHEN memory_ns IS NOT NULL AND (compute_ns IS NOT NULL OR engine <> 'MME')
            THEN greatest(coalesce(compute_ns, 0), memory_ns) * runs / nullif(span_ns, 0) END AS roofline_ratio
FROM described
ORDER BY rank, span_ns DESC, engine, node, recipe, node_id
