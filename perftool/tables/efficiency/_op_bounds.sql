-- The work of _op_work compared with the device's peaks.
--
-- The operations of matmuls, convolutions and attention count at the peak rate of their type; if that rate is not
-- published, there is no bound. Operations of other ops count at the rate of the vector units, if it is published.
--
-- needs: _op_work, _op_costs, rated_devices, device_facts
-- empty without: _op_costs
-- column id: BIGINT, _op_work.id
-- column flops: BIGINT, operations of one call
-- column bytes: BIGINT, bytes of one call
-- column unit: VARCHAR, matrix or vector
-- column dtype: VARCHAR, type of the operands, tf32 if 32-bit operands run as TF32
-- column device: VARCHAR, device_facts.device
-- column rate: DOUBLE, the peak rate that applies, in FLOP/s
-- column compute_ns: DOUBLE, operations of all calls / peak rate
-- column memory_ns: DOUBLE, bytes of all calls / bandwidth; NULL for transfers and where compute_ns is unknown but needed
WITH rates AS (
    SELECT device, split_part(fact, ' peak ', 1) AS unit, split_part(fact, ' peak ', 2) AS dtype, max(value) AS rate
    FROM device_facts WHERE fact LIKE '% peak %' GROUP BY ALL
),
typed AS (
    SELECT w.id, w.calls, w.transfer, c.flops, c.bytes, c.unit, k.device,
           CASE WHEN c.dtype = 'fp32' AND c.unit = 'matrix' AND w.tf32 THEN 'tf32' ELSE c.dtype END AS dtype
    FROM _op_work AS w JOIN _op_costs AS c USING (id) LEFT JOIN rated_devices AS k USING (rank)
),
rated AS (
    SELECT t.id, CASE WHEN t.unit = 'matrix' THEN max(r.rate) FILTER (r.dtype = t.dtype)
                      ELSE coalesce(max(r.rate) FILTER (r.unit = 'vector' AND r.dtype = t.dtype),
                                    max(r.rate) FILTER (r.unit = 'vector' AND r.dtype = 'fp32')) END AS rate
    FROM typed AS t JOIN rates AS r USING (device) GROUP BY t.id, t.unit, t.dtype
)
SELECT t.id, t.flops, t.bytes, t.unit, t.dtype, t.device, r.rate, 1e9 * t.flops * t.calls / r.rate AS compute_ns,
       CASE WHEN NOT t.transfer AND (t.unit = 'vector' OR r.rate IS NOT NULL) THEN 1e9 * t.bytes * t.calls / b.value END AS memory_ns
FROM typed AS t
LEFT JOIN rated AS r USING (id)
LEFT JOIN device_facts AS b ON b.device = t.device AND b.fact = 'memory_bandwidth'
