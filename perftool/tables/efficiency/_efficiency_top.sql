-- The rows of op_efficiency that take most time, for the report of a run of many ranks.
--
-- needs: op_efficiency
-- empty without: op_efficiency
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, op_efficiency.name
-- column source: VARCHAR, op_efficiency.source
-- column engine: VARCHAR, op_efficiency.engine
-- column kind: VARCHAR, op_efficiency.kind
-- column input_dims: VARCHAR, op_efficiency.input_dims
-- column input_types: VARCHAR, op_efficiency.input_types
-- column calls: BIGINT, op_efficiency.calls
-- column flops: DOUBLE, operations of all calls
-- column bytes: DOUBLE, bytes of all calls
-- column kernel_ns: BIGINT, op_efficiency.kernel_ns
-- column bound: VARCHAR, op_efficiency.bound
-- column best_ns: DOUBLE, time at the device's best
SELECT rank, name, source, engine, kind, input_dims, input_types, calls, flops * calls AS flops, bytes * calls AS bytes, kernel_ns,
       bound, roofline_ratio * kernel_ns AS best_ns
FROM op_efficiency
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY kernel_ns DESC, name, source, engine, input_dims, input_types) <= 60
