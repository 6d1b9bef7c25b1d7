-- The peak rates of the matrix units, for comparison with the matmuls, convolutions and attention of a rank.
--
-- needs: _op_bounds, _op_work
-- empty without: _op_bounds
-- column rank: INTEGER, distributed rank
-- column device: VARCHAR, device_facts.device
-- column dtype: VARCHAR, type of the operands
-- column unit: VARCHAR, always matrix
-- column rate: DOUBLE, FLOP/s
-- column work_ns: BIGINT, time of the work compared with this rate
SELECT w.rank, b.device, b.dtype, b.unit, b.rate, sum(w.kernel_ns)::BIGINT AS work_ns
FROM _op_bounds AS b JOIN _op_work AS w USING (id)
WHERE b.rate IS NOT NULL AND b.dtype IS NOT NULL AND b.unit = 'matrix' GROUP BY ALL
