-- One row per allocation or release that the profiler recorded (profile_memory=True).
--
-- empty without: raw
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, when, in ns
-- column device_type: INTEGER, PyTorch's number of the device type: 0 CPU, 1 CUDA or HPU
-- column device: INTEGER, device index, -1 for the CPU
-- column addr: UBIGINT, address
-- column bytes: BIGINT, bytes allocated, negative for a release
-- column allocated: BIGINT, bytes allocated in total afterwards
-- column reserved: BIGINT, bytes the allocator holds in total afterwards
WITH told AS (
    SELECT rank, ts, json_extract_string(args, [
        '$."Device Type"', '$."Device Id"', '$.Addr', '$.Bytes', '$."Total Allocated"', '$."Total Reserved"']) AS a
    FROM raw WHERE ph IN ('i', 'I') AND name = '[memory]'
)
SELECT rank, ts, try_cast(a[1] AS INTEGER) AS device_type, try_cast(a[2] AS INTEGER) AS device,
       try_cast(a[3] AS UBIGINT) AS addr, try_cast(a[4] AS BIGINT) AS bytes,
       try_cast(a[5] AS BIGINT) AS allocated, try_cast(a[6] AS BIGINT) AS reserved
FROM told
