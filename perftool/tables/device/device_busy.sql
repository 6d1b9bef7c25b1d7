-- One row per busy stretch of a rank's devices, in the part of the window where the trace shows their activity.
-- Overlapping work counts once; kernels that only wait do not count.
--
-- needs: device_ops, device_windows
-- empty without: device_ops
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
WITH work AS (
    SELECT d.rank, 0 AS class, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN device_windows AS w USING (rank)
    WHERE d.valid AND d.kind <> 'wait'
)
SELECT rank, ts, "end" - ts AS dur, "end" FROM interval_union(work) ORDER BY rank, ts
