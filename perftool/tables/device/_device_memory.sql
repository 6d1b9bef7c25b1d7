-- What is known of the size of each rank's device memory.
--
-- needs: devices, device_facts
-- column rank: INTEGER, distributed rank
-- column traced_bytes: BIGINT, as the trace says; of several devices the largest
-- column known_bytes: BIGINT, as devices.toml says of the devices that the trace names
-- column device: VARCHAR, the device that devices.toml knows
SELECT d.rank, max(d.memory_bytes) AS traced_bytes, max(f.value)::BIGINT AS known_bytes, first(f.device ORDER BY f.value DESC, f.device) AS device
FROM devices AS d LEFT JOIN device_facts AS f ON f.device = d.known AND f.fact = 'memory'
GROUP BY d.rank
