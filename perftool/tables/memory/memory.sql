-- One row per allocation or release that the profiler recorded (profile_memory=True).
--
-- needs: tracks
-- empty without: raw
-- column id: BIGINT, identifies the event within the store
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host thread (tracks.id)
-- column ts: BIGINT, time in ns
-- column ordinal: BIGINT, position among the events of its device, in order of time
-- column device_type: INTEGER, PyTorch's number of the device type: 0 CPU, 1 CUDA, 6 HIP, 12 XPU, 15 HPU, 19 MTIA
-- column device: INTEGER, device index, -1 for the CPU
-- column addr: UBIGINT, address
-- column bytes: BIGINT, bytes allocated, negative for a release
-- column allocated: BIGINT, total bytes allocated after the event; on the CPU, only by allocations during the recording
-- column reserved: BIGINT, total bytes that the allocator has reserved after the event; NULL on the CPU
WITH reported AS (
    SELECT rowid AS id, rank, pid, tid, ts, json_extract_string(args, [
        '$."Device Type"', '$."Device Id"', '$.Addr', '$.Bytes', '$."Total Allocated"', '$."Total Reserved"']) AS a
    FROM raw WHERE ph IN ('i', 'I') AND name = '[memory]'
),
typed AS (
    SELECT id, rank, pid, tid, ts, try_cast(a[1] AS INTEGER) AS device_type, try_cast(a[2] AS INTEGER) AS device,
           try_cast(a[3] AS UBIGINT) AS addr, size_of(a[4]) AS bytes,
           size_of(a[5]) AS allocated,
           -- The CPU has no caching allocator, so the profiler writes 0.
           CASE WHEN a[1] <> '0' THEN size_of(a[6]) END AS reserved
    FROM reported
)
SELECT e.id, e.rank, t.id AS track, e.ts,
       row_number() OVER (PARTITION BY e.rank, device_type, device ORDER BY e.ts, e.id) AS ordinal,
       device_type, device, addr, bytes, allocated, reserved
FROM typed AS e
LEFT JOIN tracks AS t ON t.rank = e.rank AND t.pid = coalesce(e.pid, '') AND t.tid = coalesce(e.tid, '')
