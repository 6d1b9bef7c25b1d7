-- Gaudi: the nodes of a rank inside the window compared with the device's peak, if compiled graphs contain their
-- shapes. The lanes of an engine share a run of a node, so lengths are counted per run, not per lane.
--
-- needs: node_runs, device_nodes, windows, graph_nodes
-- empty without: graph_nodes
-- column rank: INTEGER, distributed rank
-- column work_ns: BIGINT, total time of all runs
-- column bounded_ns: BIGINT, the part of work_ns in runs whose time at the device's peak is known
-- column best_ns: DOUBLE, time of the runs in bounded_ns at the device's peak, capped at their actual time
-- column matrix_ns: BIGINT, total time of the runs on the MME
-- column counted_ns: BIGINT, the part of matrix_ns in runs whose operations and peak rate are known
-- column peak_ns: DOUBLE, time that the operations of the runs in counted_ns take at the peak rate
WITH inside AS (
    SELECT n.rank, n.graph, n.node, n.node_id, n.engine, count(DISTINCT n.execution) AS runs, sum(n.dur)::BIGINT AS ns
    FROM node_runs AS n JOIN windows AS w ON w.rank = n.rank AND n.ts >= w.ts AND n.ts < w."end"
    WHERE n.engine IN ('MME', 'TPC') GROUP BY ALL
),
rated AS (
    SELECT i.rank, i.engine, i.ns, d.mfu * d.span_ns / d.runs * i.runs AS peak_ns, d.roofline_ratio * d.span_ns / d.runs * i.runs AS best_ns
    FROM inside AS i
    JOIN device_nodes AS d ON d.rank = i.rank AND d.graph = i.graph AND d.node = i.node AND d.engine = i.engine
                              AND d.node_id IS NOT DISTINCT FROM i.node_id
)
SELECT rank, sum(ns)::BIGINT AS work_ns, coalesce(sum(ns) FILTER (best_ns IS NOT NULL), 0)::BIGINT AS bounded_ns,
       sum(least(best_ns, ns) ORDER BY least(best_ns, ns)) AS best_ns, coalesce(sum(ns) FILTER (engine = 'MME'), 0)::BIGINT AS matrix_ns,
       coalesce(sum(ns) FILTER (peak_ns IS NOT NULL), 0)::BIGINT AS counted_ns, sum(peak_ns ORDER BY peak_ns) AS peak_ns
FROM rated WHERE EXISTS (FROM graph_nodes) GROUP BY rank
