-- One row per engine group of a device, over the window. Overlapping lanes of a group count once; kernels that only
-- wait do not count.
--
-- needs: device_ops, windows
-- empty without: device_ops
-- column rank: INTEGER, distributed rank
-- column engine: VARCHAR, MME, TPC, DMA, PDMA, NIC, ROT, other; or compute, copy, collective
-- column lanes: BIGINT, number of lanes that ran anything
-- column ops: BIGINT, number of units of work
-- column busy_ns: BIGINT, time while any lane of the group works
-- column busy_ratio: DOUBLE, busy_ns as a share of the window
-- column lane_ns: BIGINT, sum of the busy times of the lanes
WITH work AS (
    SELECT d.rank, d.engine, d.track, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN windows AS w USING (rank)
    WHERE d.valid AND d.kind <> 'wait'
),
groups AS (SELECT rank, engine, row_number() OVER (ORDER BY rank, engine) AS class FROM work GROUP BY rank, engine),
by_group AS (SELECT w.rank, g.class::INTEGER AS class, w.ts, w."end" FROM work AS w JOIN groups AS g USING (rank, engine)),
by_lane AS (SELECT rank, track::INTEGER AS class, ts, "end" FROM work),
lane_time AS (SELECT rank, class AS track, ns FROM interval_lengths(by_lane)),
lanes AS (
    SELECT rank, engine, count(DISTINCT track) AS lanes, count(*) AS ops FROM work WHERE "end" > ts GROUP BY ALL
),
lane_sums AS (
    SELECT u.rank, u.engine, sum(l.ns)::BIGINT AS ns
    FROM (SELECT DISTINCT rank, engine, track FROM work) AS u JOIN lane_time AS l ON l.rank = u.rank AND l.track = u.track
    GROUP BY ALL
),
busy AS (FROM interval_lengths(by_group))
SELECT g.rank, g.engine, l.lanes, l.ops, b.ns AS busy_ns, b.ns / (w."end" - w.ts) AS busy_ratio, s.ns AS lane_ns
FROM groups AS g
JOIN busy AS b ON b.rank = g.rank AND b.class = g.class
JOIN lanes AS l ON l.rank = g.rank AND l.engine = g.engine
JOIN lane_sums AS s ON s.rank = g.rank AND s.engine = g.engine
JOIN windows AS w ON w.rank = g.rank
ORDER BY g.rank, b.ns DESC, g.engine
