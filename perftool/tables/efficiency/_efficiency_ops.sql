-- The 60 ops of each rank that take the most time, each over all its shapes. Used by the headline of the report.
--
-- needs: op_efficiency, op_shortfalls
-- empty without: op_efficiency
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, op_efficiency.name
-- column source: VARCHAR, op_efficiency.source, the first in alphabetical order if it differs
-- column engine: VARCHAR, op_efficiency.engine of the longest calls
-- column kind: VARCHAR, op_efficiency.kind
-- column input_dims: VARCHAR, shapes of the longest calls without a cost model; NULL if some calls have no shapes
-- column input_types: VARCHAR, types of the longest calls without a cost model
-- column calls: BIGINT, number of calls
-- column kernel_ns: BIGINT, time of all calls in ns
-- column unsized_calls: BIGINT, calls without a cost model
-- column unsized_ns: BIGINT, the part of kernel_ns in calls without a cost model
-- column bounded_calls: BIGINT, calls whose time at the device's peak is known
-- column bounded_ns: BIGINT, the part of kernel_ns in calls whose time at the device's peak is known
-- column best_ns: DOUBLE, time of the calls in bounded_calls at the device's peak
-- column judged: BOOLEAN, whether the recording shows for each call if it could be faster
-- column lost_ns: BIGINT, time beyond the attainable time (op_shortfalls.lost_ns)
-- column work_ns: BIGINT, time of all ops of the rank in ns
WITH judged AS (
    SELECT e.*, e.roofline_ratio * e.kernel_ns AS best_ns,
           -- op_shortfalls considers ops with at least 2 % of the work.
           CASE WHEN s.lost_ns IS NOT NULL THEN s.lost_ns
                WHEN e.roofline_ratio >= 0.8 OR e.roofline_ratio IS NOT NULL AND e.kernel_ns > 0.02 * sum(e.kernel_ns) OVER (PARTITION BY e.rank) THEN 0 END AS lost_ns
    FROM op_efficiency AS e
    LEFT JOIN op_shortfalls AS s ON e.source = 'op' AND s.rank = e.rank AND s.name = e.name AND s.input_dims = e.input_dims AND s.input_types = e.input_types
)
SELECT rank, name, min(source) AS source, arg_max(engine, (kernel_ns, engine)) AS engine, min(kind) AS kind,
       CASE WHEN count(input_dims) = count(*) THEN arg_max(input_dims, (kernel_ns, input_dims)) FILTER (bytes IS NULL) END AS input_dims,
       arg_max(input_types, (kernel_ns, input_dims)) FILTER (bytes IS NULL) AS input_types,
       sum(calls)::BIGINT AS calls, sum(kernel_ns)::BIGINT AS kernel_ns,
       coalesce(sum(calls) FILTER (bytes IS NULL), 0)::BIGINT AS unsized_calls,
       coalesce(sum(kernel_ns) FILTER (bytes IS NULL), 0)::BIGINT AS unsized_ns,
       coalesce(sum(calls) FILTER (best_ns IS NOT NULL), 0)::BIGINT AS bounded_calls,
       coalesce(sum(kernel_ns) FILTER (best_ns IS NOT NULL), 0)::BIGINT AS bounded_ns,
       sum(best_ns ORDER BY best_ns) AS best_ns,
       count(lost_ns) = count(*) AS judged, coalesce(sum(lost_ns), 0)::BIGINT AS lost_ns,
       sum(sum(kernel_ns)) OVER (PARTITION BY rank)::BIGINT AS work_ns
FROM judged GROUP BY rank, name
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY sum(kernel_ns) DESC, name) <= 60
