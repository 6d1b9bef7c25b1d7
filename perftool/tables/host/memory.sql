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
SELECT rank, ts, try_cast(arg(args, 'Device Type') AS INTEGER) AS device_type, try_cast(arg(args, 'Device Id') AS INTEGER) AS device,
       try_cast(arg(args, 'Addr') AS UBIGINT) AS addr, int_arg(args, 'Bytes') AS bytes,
       int_arg(args, 'Total Allocated') AS allocated, int_arg(args, 'Total Reserved') AS reserved
FROM raw WHERE ph IN ('i', 'I') AND name = '[memory]'
