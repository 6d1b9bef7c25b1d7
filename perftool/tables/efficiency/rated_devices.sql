-- The known devices, except those with implausible peak rates.
--
-- The rates of a CPU were measured when the trace was recorded. If the run's matmuls are more than 10 % faster, other
-- processes disturbed the measurement. On an overloaded machine, the times of ops include waits for a core, so they do
-- not show how fast the ops are.
--
-- absent: the device is unknown, or it is a CPU that was overloaded, or whose measured rates are below those of the run's matmuls
-- needs: known_devices, machines, machine_loads, device_facts, _op_work, _op_costs
-- empty without: known_devices
-- column rank: INTEGER, distributed rank
-- column device: VARCHAR, device_facts.device
WITH outrun AS (
    SELECT w.rank, f.device
    FROM machines AS m JOIN _op_work AS w USING (rank) JOIN _op_costs AS c USING (id)
    JOIN device_facts AS f ON f.device = m.device AND f.fact = 'matrix peak ' || c.dtype
    WHERE c.unit = 'matrix'
    GROUP BY w.rank, f.device, f.value, c.dtype, w.name
    -- Times shorter than a millisecond are too imprecise.
    HAVING sum(w.kernel_ns) > 1e6 AND sum(1e9 * c.flops * w.calls) > 1.1 * f.value * sum(w.kernel_ns)
)
SELECT rank, device FROM known_devices ANTI JOIN outrun USING (rank, device)
WHERE (rank, device) NOT IN (
    SELECT (m.rank, m.device) FROM machines AS m JOIN machine_loads AS l USING (rank) WHERE l.overloaded AND m.device IS NOT NULL
)
