-- One row per matrix product with recorded shapes on a known device: what it took, and what the device could do.
--
-- A product is an op (mm, addmm, bmm, baddbmm) with all kernels that it launched. The bound is the longer of two times:
-- its operations at the peak rate of its data type, and its operands and result, each moved once, at the bandwidth of
-- the memory. An added term is left out of the traffic. Products of 32-bit operands count as TF32 only when a kernel's
-- name says so; those whose data type has no published rate on the device are left out.
--
-- absent: the trace shows no matrix products with shapes (record_shapes=True) and a data type the device is known to compute
-- needs: matmuls, ops, known_devices, device_facts
-- column rank: INTEGER, distributed rank
-- column op: BIGINT, ops.id
-- column name: VARCHAR, name of the op
-- column device: VARCHAR, device_facts.device
-- column dtype: VARCHAR, bf16, fp16, tf32, fp32, fp64 or fp8
-- column batch: BIGINT, number of products
-- column m: BIGINT, rows of the first operand
-- column k: BIGINT, columns of the first operand
-- column n: BIGINT, columns of the second operand
-- column ts: BIGINT, start of its first kernel in ns
-- column dur: BIGINT, time of its kernels in ns
-- column compute_ns: DOUBLE, operations / peak rate
-- column memory_ns: DOUBLE, traffic / bandwidth
-- column bound_ns: DOUBLE, the longer of both
WITH products AS (
    SELECT x.rank, x.op, x.op_name AS name, x.batch, x.m, x.k, x.n, min(x.bits) AS bits, min(x.ts) AS ts,
           sum(x.dur)::BIGINT AS dur, bool_or(x.tf32) AS tensor
    FROM matmuls AS x WHERE x.batch > 0 AND x.m > 0 AND x.k > 0 AND x.n > 0 GROUP BY ALL
),
typed AS (
    SELECT p.*, k.device,
           CASE WHEN p.bits = 8 THEN 'fp8' WHEN p.bits = 64 THEN 'fp64' WHEN p.bits = 32 AND p.tensor THEN 'tf32'
                WHEN p.bits = 32 THEN 'fp32' WHEN o.input_types LIKE '%BFloat16%' THEN 'bf16'
                WHEN o.input_types LIKE '%Half%' THEN 'fp16' END AS dtype
    FROM products AS p JOIN known_devices AS k USING (rank) JOIN ops AS o ON o.id = p.op
),
rates AS (
    SELECT device, split_part(fact, ' peak ', 2) AS dtype, max(value) AS rate
    FROM device_facts WHERE fact LIKE '% peak %' GROUP BY ALL
),
bounds AS (
    SELECT t.*, 2e9 * t.batch * t.m * t.k * t.n / r.rate AS compute_ns,
           1e9 * t.batch * (1.0::DOUBLE * t.m * t.k + 1.0::DOUBLE * t.k * t.n + 1.0::DOUBLE * t.m * t.n) * (t.bits / 8) / b.value AS memory_ns
    FROM typed AS t
    JOIN rates AS r USING (device, dtype)
    JOIN device_facts AS b ON b.device = t.device AND b.fact = 'memory_bandwidth'
)
SELECT rank, op, name, device, dtype, batch, m, k, n, ts, dur, compute_ns, memory_ns,
       greatest(compute_ns, memory_ns) AS bound_ns
FROM bounds
