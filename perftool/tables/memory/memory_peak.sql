-- The memory in use on each device at its peak, largest amount first. The rows of a device add up to the allocated
-- bytes.
--
-- needs: _memory_moments, allocations
-- empty without: _memory_moments
-- column rank: INTEGER, distributed rank
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index, -1 for the CPU
-- column main: BOOLEAN, whether this is the rank's accelerator with the most allocated memory, or the host if there is no accelerator
-- column ts: BIGINT, time of the peak in ns
-- column kind: VARCHAR, allocations.kind; before_recording is all memory except the blocks in the recording
-- column op: VARCHAR, allocations.op
-- column module: VARCHAR, allocations.module
-- column line: VARCHAR, allocations.line
-- column bytes: BIGINT, bytes in use
-- column count: BIGINT, number of blocks in use; NULL if unknown
-- column allocated: BIGINT, bytes allocated on the device
-- column reserved: BIGINT, bytes that the device's allocator has reserved
WITH peaks AS (FROM _memory_moments WHERE step_ts IS NULL),
living AS (
    SELECT p.rank, p.device_type, p.device, p.main, p.ts, p.allocated, p.reserved, a.kind, a.op, a.module, a.line, a.bytes
    FROM allocations AS a JOIN peaks AS p USING (rank, device_type, device)
    WHERE a.made <= p.ordinal AND (a.released IS NULL OR a.released > p.ordinal)
),
totals AS (SELECT rank, device_type, device, sum(bytes) AS bytes FROM living GROUP BY ALL),
every AS (
    SELECT rank, device_type, device, main, ts, kind, op, module, line, sum(bytes) AS bytes, count(*) AS count, allocated, reserved
    FROM living GROUP BY ALL
    UNION ALL
    SELECT p.rank, p.device_type, p.device, p.main, p.ts, 'before_recording', NULL, NULL, NULL,
           p.allocated - coalesce(t.bytes, 0), NULL, p.allocated, p.reserved
    FROM peaks AS p LEFT JOIN totals AS t USING (rank, device_type, device)
    WHERE p.allocated > coalesce(t.bytes, 0)
)
SELECT rank, device_type, device, main, ts, kind, op, module, line, try_cast(bytes AS BIGINT) AS bytes, count, allocated, reserved
FROM every
ORDER BY rank, device_type, device, every.bytes DESC, kind, op, module, line
