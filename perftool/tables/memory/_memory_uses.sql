-- The memory in use at the peak of each rank's main device, by kind, with the ops that allocated most of it. Used by
-- the report.
--
-- needs: memory_peak
-- empty without: memory_peak
-- column rank: INTEGER, distributed rank
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index, -1 for the CPU
-- column ts: BIGINT, time of the peak in ns
-- column kind: VARCHAR, allocations.kind, or undecided where that column is NULL
-- column bytes: BIGINT, bytes in use
-- column count: BIGINT, number of blocks in use, NULL for memory from before the recording
-- column makers: VARCHAR, up to three ops that allocated the most, with their modules (or lines, if no op is known); empty if unknown
-- column allocated: BIGINT, bytes allocated on the device
-- column reserved: BIGINT, bytes that the device's allocator has reserved
WITH made AS (
    SELECT *, coalesce(kind, 'undecided') AS use,
           coalesce(op || coalesce(' (' || regexp_extract(module, '^nn\.Module: (.+)_\d+$', 1) || ')', ''), line, '') AS maker
    FROM memory_peak WHERE main
),
makers AS (
    SELECT rank, use, maker, sum(bytes) AS bytes FROM made WHERE maker <> '' GROUP BY rank, use, maker
),
largest AS (SELECT rank, use, list(maker ORDER BY bytes DESC, maker)[:3] AS makers FROM makers GROUP BY rank, use)
SELECT m.rank, device_type, device, ts, m.use AS kind, try_cast(sum(bytes) AS BIGINT) AS bytes, sum(count)::BIGINT AS count,
       coalesce(array_to_string(min(l.makers), ', '), '') AS makers, allocated, reserved
FROM made AS m LEFT JOIN largest AS l USING (rank, use)
GROUP BY m.rank, device_type, device, ts, m.use, allocated, reserved
