-- The device work that starts inside the window, by the op that launched it: the innermost op or annotation.
--
-- needs: device_ops, _device_work, ops, windows, matmuls
-- column id: BIGINT, number of the row
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, name of the op, NULL for work that no op launched
-- column input_dims: VARCHAR, ops.input_dims
-- column input_types: VARCHAR, ops.input_types
-- column concrete_inputs: VARCHAR, ops.concrete_inputs
-- column calls: BIGINT, calls that launched work, NULL where no op launched it
-- column kernel_ns: BIGINT, length of the work
-- column matrix_ns: BIGINT, length of those kernels of it that matmuls lists
-- column tf32: BOOLEAN, products of 32-bit operands that run as TF32 (matmuls.tf32)
-- column transfer: BOOLEAN, work that does not run at the speed of the device's memory: collectives, and copies from or to elsewhere
WITH matrix AS (SELECT id, tf32 FROM matmuls),
transfers AS (SELECT id FROM _device_work WHERE transfer OR coalesce(direction, 'device_to_device') <> 'device_to_device'),
launched AS (
    -- What a step launches without an op, no op launches.
    SELECT d.rank, CASE WHEN NOT is_step(d.op_name) THEN d.op END AS op,
           CASE WHEN NOT is_step(d.op_name) THEN d.op_name END AS op_name, sum(d.dur)::BIGINT AS kernel_ns, coalesce(sum(d.dur) FILTER (m.id IS NOT NULL), 0)::BIGINT AS matrix_ns,
           coalesce(bool_or(m.tf32), false) AS tf32, bool_or(d.kind = 'collective' OR t.id IS NOT NULL) AS transfer
    FROM device_ops AS d
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    LEFT JOIN matrix AS m ON m.id = d.id
    LEFT JOIN transfers AS t ON t.id = d.id
    WHERE d.valid AND d.kind <> 'wait'
    GROUP BY ALL
)
SELECT row_number() OVER (ORDER BY l.rank, l.op_name, o.input_dims, o.input_types, o.concrete_inputs) AS id,
       l.rank, l.op_name AS name, o.input_dims, o.input_types, o.concrete_inputs,
       nullif(count(l.op), 0) AS calls, sum(l.kernel_ns)::BIGINT AS kernel_ns, sum(l.matrix_ns)::BIGINT AS matrix_ns,
       bool_or(l.tf32) AS tf32, bool_or(l.transfer) AS transfer
FROM launched AS l LEFT JOIN ops AS o ON o.id = l.op
GROUP BY l.rank, l.op_name, o.input_dims, o.input_types, o.concrete_inputs
