-- One row per block of memory, that is, an allocation with its release. Used by allocations and _memory_moments.
--
-- An address that is allocated again must have been released before, even if the recording does not show the release:
-- PyTorch does not record releases on threads without the profiler.
--
-- needs: memory
-- empty without: memory
-- column id: BIGINT, memory.id of the allocation, or of the release of a block from before the recording
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host thread of the allocation, NULL for an allocation before the recording
-- column device_type: INTEGER, memory.device_type
-- column device: INTEGER, device index
-- column addr: UBIGINT, address
-- column bytes: BIGINT, size
-- column ts: BIGINT, time of the allocation in ns, NULL for an allocation before the recording
-- column made: BIGINT, memory.ordinal of the allocation, NULL for an allocation before the recording
-- column end: BIGINT, time of the release in ns, NULL when the recording ends before the release
-- column released: BIGINT, memory.ordinal of the release
WITH reported AS (
    -- Leave out impossible sizes: no device has this much memory, and sums of larger sizes would not fit in 64 bits.
    SELECT *, lag(bytes) OVER w AS bytes_before, lead(ts) OVER w AS next_ts, lead(ordinal) OVER w AS next_ordinal
    FROM memory WHERE ts IS NOT NULL AND addr IS NOT NULL AND bytes <> 0 AND bytes BETWEEN -9007199254740992 AND 9007199254740992
    WINDOW w AS (PARTITION BY rank, device_type, device, addr ORDER BY ordinal)
)
SELECT id, rank, track, device_type, device, addr, bytes, ts, ordinal AS made, next_ts AS "end", next_ordinal AS released
FROM reported WHERE bytes > 0
UNION ALL
SELECT id, rank, NULL, device_type, device, addr, -bytes, NULL, NULL, ts, ordinal
FROM reported WHERE bytes < 0 AND coalesce(bytes_before, -1) < 0
