-- Totals of the ops of a rank, compared with the device's peaks. If compiled graphs contain the shapes of a Gaudi's
-- work, the totals cover the nodes of these graphs.
--
-- needs: _op_work, _op_bounds, op_kinds, _node_totals
-- empty without: _op_work
-- column rank: INTEGER, distributed rank
-- column work_ns: BIGINT, time of all work except transfers (_op_work.transfer)
-- column bounded_ns: BIGINT, the part of work_ns in ops whose time at the device's peak is known
-- column best_ns: DOUBLE, time of the ops in bounded_ns at the device's peak, capped at their actual time
-- column matrix_ns: BIGINT, time of the kernels of matmuls and convolutions
-- column counted_ns: BIGINT, the part of matrix_ns in ops whose operations and peak rate are known
-- column peak_ns: DOUBLE, time that the operations of matmuls, convolutions and attention take at the peak rate
-- column recomputed_ns: DOUBLE, the part of peak_ns for ops that checkpointing runs again
-- column passes_ns: BIGINT, time of the kernels of pointwise, normalisation, reduction and copy ops
-- column op_ns: BIGINT, time of the work that ops launched, without transfers
-- column shaped_ns: BIGINT, time of the work with recorded shapes, without transfers
-- column sized_ns: BIGINT, time of the work of ops with a cost model
-- column graph_ns: BIGINT, time of the work of captured graphs
-- column sized_bytes: DOUBLE, bytes that the ops with a cost model read and write
WITH ops AS (
    -- Floating-point sums need a fixed order to be reproducible.
    SELECT w.rank, coalesce(sum(w.kernel_ns) FILTER (NOT w.transfer), 0)::BIGINT AS work_ns,
           coalesce(sum(w.kernel_ns) FILTER (b.memory_ns IS NOT NULL), 0)::BIGINT AS bounded_ns,
           sum(t.best_ns ORDER BY t.best_ns) AS best_ns,
           sum(w.matrix_ns)::BIGINT AS matrix_ns,
           coalesce(sum(w.matrix_ns) FILTER (b.unit = 'matrix' AND b.compute_ns IS NOT NULL), 0)::BIGINT AS counted_ns,
           sum(b.compute_ns ORDER BY b.compute_ns) FILTER (b.unit = 'matrix') AS peak_ns,
           coalesce(sum(b.compute_ns ORDER BY b.compute_ns) FILTER (b.unit = 'matrix' AND w.recomputed), 0) AS recomputed_ns,
           coalesce(sum(w.kernel_ns) FILTER (k.kind IN ('pointwise', 'normalisation', 'reduction', 'copy') AND NOT w.transfer), 0)::BIGINT AS passes_ns,
           coalesce(sum(w.kernel_ns) FILTER (w.source = 'op' AND NOT w.transfer), 0)::BIGINT AS op_ns,
           coalesce(sum(w.kernel_ns) FILTER (w.input_dims IS NOT NULL AND NOT w.transfer), 0)::BIGINT AS shaped_ns,
           coalesce(sum(w.kernel_ns) FILTER (b.bytes IS NOT NULL), 0)::BIGINT AS sized_ns,
           coalesce(sum(w.kernel_ns) FILTER (w.source = 'graph'), 0)::BIGINT AS graph_ns,
           sum(b.bytes::HUGEINT * w.calls)::DOUBLE AS sized_bytes
    FROM _op_work AS w LEFT JOIN _op_bounds AS b USING (id) LEFT JOIN op_kinds AS k USING (name),
         LATERAL (SELECT CASE WHEN b.memory_ns IS NOT NULL THEN least(greatest(coalesce(b.compute_ns, 0), b.memory_ns), w.kernel_ns) END AS best_ns) AS t
    GROUP BY w.rank
)
SELECT o.rank, coalesce(n.work_ns, o.work_ns) AS work_ns, coalesce(n.bounded_ns, o.bounded_ns) AS bounded_ns,
       CASE WHEN n.rank IS NULL THEN o.best_ns ELSE n.best_ns END AS best_ns, coalesce(n.matrix_ns, o.matrix_ns) AS matrix_ns,
       coalesce(n.counted_ns, o.counted_ns) AS counted_ns, CASE WHEN n.rank IS NULL THEN o.peak_ns ELSE n.peak_ns END AS peak_ns,
       o.* EXCLUDE (rank, work_ns, bounded_ns, best_ns, matrix_ns, counted_ns, peak_ns)
FROM ops AS o LEFT JOIN _node_totals AS n USING (rank)
