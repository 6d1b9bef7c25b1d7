-- One row per host call that submitted work to a device.
--
-- needs: _runtime, _device_work
-- column id: BIGINT, the call (slices.id)
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track of the call
-- column name: VARCHAR, name of the call
-- column ts: BIGINT, start of the call in ns
-- column dur: BIGINT, length of the call in ns
-- column end: BIGINT, end of the call
-- column correlation: BIGINT, id shared with the device work
-- column recipe: BIGINT, recipe that was launched (Gaudi)
-- column device_ops: BIGINT, units of device work submitted
-- column device_ts: BIGINT, start of the first of them
-- column device_end: BIGINT, end of the last of them
-- column queue_ns: BIGINT, time between the start of the call and the start of the device work
-- column parent: BIGINT, slice in which the call was made
WITH submitted AS (
    SELECT rank, correlation, count(*) AS device_ops, min(ts) AS device_ts, max("end") AS device_end
    FROM _device_work
    WHERE correlation IS NOT NULL AND set_aside IS NULL
    GROUP BY rank, correlation
)
SELECT r.id, r.rank, r.track, r.name, r.ts, r."end" - r.ts AS dur, r."end", r.correlation, NULL::BIGINT AS recipe,
       s.device_ops, s.device_ts, s.device_end, s.device_ts - r.ts AS queue_ns, r.parent
FROM _runtime AS r
JOIN submitted AS s USING (rank, correlation)
