-- Stretches of the window in which the trace shows a rank's device as idle.
--
-- needs: device_busy, device_windows
-- empty without: device_windows
-- column id: BIGINT, identifies the gap
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH points AS (
    SELECT rank, "end" AS ts, lead(ts) OVER (PARTITION BY rank ORDER BY ts) AS "end" FROM device_busy
    UNION ALL
    -- If the device works only outside the window, the whole window is a gap; if there is no device, there are no gaps.
    SELECT w.rank, w.ts, min(b.ts) FROM device_windows AS w LEFT JOIN device_busy AS b ON b.rank = w.rank
    GROUP BY w.rank, w.ts
),
closed AS (
    SELECT p.rank, p.ts, coalesce(p."end", w."end") AS "end" FROM points AS p JOIN device_windows AS w USING (rank)
)
SELECT row_number() OVER (ORDER BY rank, ts) - 1 AS id, rank, ts, "end" FROM closed WHERE "end" > ts
