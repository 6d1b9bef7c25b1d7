-- The rows of op_efficiency that take the most time, for reports on many ranks.
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
-- column best_ns: DOUBLE, time at the device's peak
SELECT e.rank, e.name, e.source, e.engine, e.kind, e.input_dims, e.input_types, e.calls, e.flops * e.calls AS flops,
       e.bytes * e.calls AS bytes, e.kernel_ns, e.bound, e.roofline_ratio * e.kernel_ns AS best_ns
FROM op_efficiency AS e
QUALIFY row_number() OVER (PARTITION BY e.rank ORDER BY e.kernel_ns DESC, e.name, e.source, e.engine, e.input_dims, e.input_types) <= 60
