-- Time of each combination of Gaudi engines that work at the same time, inside the window. Overlapping lanes of an
-- engine count once.
--
-- needs: device_ops, tracks, windows, roles
-- empty without: device_ops, tracks.engine
-- column rank: INTEGER, distributed rank
-- column mask: BIGINT, bits: 1 for the MME, 2 for the TPC, 4 for DMA or PDMA, 8 for any other engine, 16 for internal transfers of the runtime or the profiler; never 0
-- column ns: BIGINT, time of the combination
WITH work AS (
    SELECT d.rank, CASE WHEN d.name IN (SELECT name FROM roles WHERE role = 'internal') THEN 4
                        ELSE CASE t.engine WHEN 'MME' THEN 0 WHEN 'TPC' THEN 1 WHEN 'DMA' THEN 2 WHEN 'PDMA' THEN 2 ELSE 3 END END
               AS class, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN tracks AS t ON t.id = d.track
    JOIN windows AS w ON w.rank = d.rank AND d.ts < w."end" AND d."end" > w.ts
    WHERE d.valid AND d.kind <> 'wait' AND t.engine IS NOT NULL
),
engines AS (SELECT * FROM interval_union(work))
SELECT rank, mask, sum("end" - ts)::BIGINT AS ns FROM interval_sweep(engines) WHERE mask > 0 GROUP BY rank, mask
