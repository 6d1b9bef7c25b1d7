-- One row per host call that submitted work to a device. Where the CPU is the device, an op that computes is its own
-- launch.
--
-- needs: _runtime, _device_work, _links, _cpu_work, slices
-- empty without: _links
-- column id: BIGINT, the call (slices.id)
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track of the call
-- column name: VARCHAR, name of the call
-- column ts: BIGINT, start of the call in ns
-- column dur: BIGINT, duration of the call in ns
-- column end: BIGINT, end of the call in ns
-- column correlation: BIGINT, id shared with the device work, when recorded
-- column recipe: BIGINT, recipe that was launched (Gaudi)
-- column device_ops: BIGINT, number of units of device work submitted
-- column device_ts: BIGINT, start of the first unit of this work in ns
-- column device_end: BIGINT, end of the last unit of this work in ns
-- column queue_ns: BIGINT, time between the start of the call and the start of the device work
-- column parent: BIGINT, slice in which the call was made
-- column own_work: BOOLEAN, whether the call does the work itself, because the CPU is the device
WITH submitted AS (
    SELECT l.launch AS id, count(*) AS device_ops, min(w.ts) AS device_ts, max(w."end") AS device_end,
           min(w.recipe) FILTER (w.engine IS NOT NULL) AS recipe
    FROM _links AS l JOIN _device_work AS w ON w.id = l.work
    GROUP BY l.launch
)
SELECT r.id, r.rank, r.track, r.name, r.ts, r."end" - r.ts AS dur, r."end", r.correlation, s.recipe,
       s.device_ops, s.device_ts, s.device_end, s.device_ts - r.ts AS queue_ns, r.parent, false AS own_work
FROM _runtime AS r
JOIN submitted AS s USING (id)
UNION ALL
SELECT w.id, w.rank, w.track, w.name, w.ts, w."end" - w.ts, w."end", NULL, NULL, 1, w.ts, w."end", 0, s.parent, true
FROM _cpu_work AS w JOIN slices AS s USING (id)
