-- The memory in use on each device at the peak and at the end of each step, by kind. The kinds add up to the allocated
-- bytes.
--
-- needs: _memory_moments, allocations
-- empty without: _memory_moments
-- column rank: INTEGER, distributed rank
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index, -1 for the CPU
-- column main: BOOLEAN, whether this is the rank's accelerator with the most allocated memory, or the host if there is no accelerator
-- column step: INTEGER, number of the step
-- column ts: BIGINT, start of the step in ns
-- column peak_ts: BIGINT, time of the step's peak in ns
-- column kind: VARCHAR, allocations.kind; before_recording is all memory except the blocks in the recording
-- column peak_bytes: BIGINT, bytes of the kind in use at the peak of the step
-- column end_bytes: BIGINT, bytes of the kind in use at the end of the step
-- column allocated: BIGINT, bytes of all kinds at the peak
-- column reserved: BIGINT, bytes that the allocator has reserved at the peak
WITH changes AS (
    SELECT rank, device_type, device, coalesce(kind, 'unknown') AS kind, made AS ordinal, bytes
    FROM allocations WHERE made IS NOT NULL
    UNION ALL
    SELECT rank, device_type, device, coalesce(kind, 'unknown'), released, -bytes
    FROM allocations WHERE made IS NOT NULL AND released IS NOT NULL
),
living AS (
    SELECT rank, device_type, device, kind, ordinal,
           sum(bytes) OVER (PARTITION BY rank, device_type, device, kind ORDER BY ordinal) AS bytes
    FROM changes
),
kinds AS (SELECT DISTINCT rank, device_type, device, kind FROM changes),
wanted AS (
    SELECT m.*, k.kind FROM _memory_moments AS m JOIN kinds AS k USING (rank, device_type, device) WHERE m.step_ts IS NOT NULL
),
seen AS (
    SELECT w.*, coalesce(l.bytes, 0) AS bytes
    FROM wanted AS w ASOF LEFT JOIN living AS l
        ON l.rank = w.rank AND l.device_type = w.device_type AND l.device = w.device AND l.kind = w.kind AND w.ordinal >= l.ordinal
),
every AS (
    SELECT rank, device_type, device, main, step, step_ts, moment, kind, bytes, ts, allocated, reserved FROM seen
    UNION ALL
    SELECT rank, device_type, device, main, step, step_ts, moment, 'before_recording', greatest(allocated - sum(bytes), 0),
           ts, allocated, reserved
    FROM seen GROUP BY rank, device_type, device, main, step, step_ts, moment, ts, allocated, reserved
)
SELECT rank, device_type, device, main, step, step_ts AS ts, max(every.ts) FILTER (moment = 'peak') AS peak_ts,
       nullif(every.kind, 'unknown') AS kind,
       try_cast(sum(bytes) FILTER (moment = 'peak') AS BIGINT) AS peak_bytes,
       try_cast(sum(bytes) FILTER (moment = 'end') AS BIGINT) AS end_bytes,
       max(every.allocated) FILTER (moment = 'peak') AS allocated, max(every.reserved) FILTER (moment = 'peak') AS reserved
FROM every
GROUP BY rank, device_type, device, main, step, step_ts, every.kind
HAVING sum(bytes) > 0
ORDER BY rank, device_type, device, step_ts, every.kind
