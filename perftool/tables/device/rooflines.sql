-- One row per matmul with recorded shapes on a known device: its time compared with the device's roofline.
--
-- A matmul is a call of mm, addmm, bmm or baddbmm, with all its kernels. The bound is the longer of two times: the
-- operations at the peak rate of the data type, and one transfer of the operands and the result at the memory's
-- bandwidth. The formulas are those of op_efficiency. Matmuls of 32-bit operands count as TF32 only when a kernel's
-- name says so; matmuls whose data type has no published rate on the device are left out.
--
-- absent: the trace shows no matmuls with shapes (record_shapes=True) and a data type with a known rate on the device
-- needs: matmuls, ops, _op_work, _op_bounds
-- empty without: matmuls, _op_bounds.compute_ns
-- column rank: INTEGER, distributed rank
-- column op: BIGINT, ops.id
-- column name: VARCHAR, name of the op
-- column device: VARCHAR, device_facts.device
-- column dtype: VARCHAR, bf16, fp16, tf32, fp32, fp64 or fp8
-- column batch: BIGINT, number of matmuls
-- column m: BIGINT, rows of the first operand
-- column k: BIGINT, columns of the first operand
-- column n: BIGINT, columns of the second operand
-- column ts: BIGINT, start of the first kernel in ns
-- column dur: BIGINT, time of the kernels in ns
-- column compute_ns: DOUBLE, operations / peak rate, in ns
-- column memory_ns: DOUBLE, bytes moved / bandwidth, in ns
-- column bound_ns: DOUBLE, the larger of compute_ns and memory_ns
WITH products AS (
    SELECT rank, op, op_name AS name, batch, m, k, n, min(ts) AS ts, sum(dur)::BIGINT AS dur
    FROM matmuls WHERE batch > 0 AND m > 0 AND k > 0 AND n > 0 GROUP BY ALL
),
best AS (
    SELECT w.rank, w.name, w.input_dims, w.input_types, b.device, b.dtype, b.compute_ns / w.calls AS compute_ns,
           b.memory_ns / w.calls AS memory_ns
    FROM _op_work AS w JOIN _op_bounds AS b USING (id)
    WHERE w.source = 'op' AND b.compute_ns IS NOT NULL AND b.memory_ns IS NOT NULL
    -- Arguments other than shapes and types do not affect a matmul's operations and bytes.
    QUALIFY row_number() OVER (PARTITION BY w.rank, w.name, w.input_dims, w.input_types ORDER BY w.id) = 1
)
SELECT p.rank, p.op, p.name, b.device, b.dtype, p.batch, p.m, p.k, p.n, p.ts, p.dur, b.compute_ns, b.memory_ns,
       greatest(b.compute_ns, b.memory_ns) AS bound_ns
FROM products AS p JOIN ops AS o ON o.id = p.op
JOIN best AS b ON b.rank = p.rank AND b.name = p.name AND b.input_dims = o.input_dims AND b.input_types = o.input_types
