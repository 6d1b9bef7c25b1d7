-- One row per moment of interest: the peaks of the recording and of each step, and the ends of steps, by device. Used
-- by memory_steps and memory_peak.
--
-- needs: memory, _memory_blocks, step_marks
-- empty without: _memory_blocks
-- column rank: INTEGER, distributed rank
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index
-- column main: BOOLEAN, whether this is the rank's accelerator with the most allocated memory, or the host if there is no accelerator
-- column step: INTEGER, number of the step, NULL for the peak of the recording
-- column step_ts: BIGINT, start of the step in ns
-- column moment: VARCHAR, peak, or end (the last event of the step)
-- column ordinal: BIGINT, memory.ordinal of the moment
-- column ts: BIGINT, time in ns
-- column allocated: BIGINT, memory.allocated
-- column reserved: BIGINT, memory.reserved
WITH reported AS (
    -- Blocks are identified by address, so devices whose events have no addresses get no rows.
    SELECT m.rank, device_type, device, ordinal, m.ts, allocated, reserved, s.step, s.ts AS step_ts, s."end" > m.ts AS in_step
    FROM memory AS m SEMI JOIN _memory_blocks AS b USING (rank, device_type, device)
    ASOF LEFT JOIN step_marks AS s ON s.rank = m.rank AND m.ts >= s.ts
    WHERE allocated IS NOT NULL AND m.ts IS NOT NULL
),
chosen AS (
    SELECT rank, device_type, device, NULL::INTEGER AS step, NULL::BIGINT AS step_ts, 'peak' AS moment,
           max_by(ordinal, (allocated, -ordinal)) AS ordinal
    FROM reported GROUP BY rank, device_type, device
    UNION ALL
    SELECT rank, device_type, device, step, step_ts, unnest(['peak', 'end']),
           unnest([max_by(ordinal, (allocated, -ordinal)), max(ordinal)])
    FROM reported WHERE in_step GROUP BY rank, device_type, device, step, step_ts
),
-- PyTorch's device type 0 is the CPU.
mains AS (
    SELECT rank, max_by({'device_type': device_type, 'device': device}, (device_type > 0, allocated, -device_type, -device)) AS main
    FROM reported GROUP BY rank
)
SELECT rank, device_type, device, {'device_type': device_type, 'device': device} = l.main AS main,
       c.step, c.step_ts, c.moment, ordinal, t.ts, t.allocated, t.reserved
FROM chosen AS c JOIN reported AS t USING (rank, device_type, device, ordinal) JOIN mains AS l USING (rank)
