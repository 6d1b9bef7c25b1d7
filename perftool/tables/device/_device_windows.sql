-- The part of the window in which the trace shows what the device does.
--
-- Nothing is known of a device before its first recorded work when that work was submitted before the recording, or
-- started more than a millisecond after its submission: the device was at work that was not recorded. Otherwise the
-- queue was empty, and the device idle. A copy is submitted when its call begins, since such calls may wait for it.
--
-- needs: windows, device_ops, launches
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column unknown_ns: BIGINT, how much of the window is left out
WITH firsts AS (
    SELECT rank, min(ts) AS ts FROM device_ops WHERE valid GROUP BY rank
),
begun AS (
    SELECT f.rank, f.ts, min(CASE WHEN d.kind = 'memcpy' THEN l.ts ELSE l."end" END) AS submitted
    FROM firsts AS f
    JOIN device_ops AS d ON d.rank = f.rank AND d.ts = f.ts AND d.valid
    LEFT JOIN launches AS l ON l.id = d.launch
    GROUP BY f.rank, f.ts
),
known AS (
    SELECT w.rank, w."end", w.ts AS window_ts,
           -- A trace that shows no submission at all says nothing about the queue; what it shows must do.
           CASE WHEN b.ts > w.ts AND b.rank IN (SELECT rank FROM launches)
                    AND (b.submitted IS NULL OR b.ts - b.submitted > 1000000)
                THEN least(b.ts, w."end") ELSE w.ts END AS ts
    FROM windows AS w JOIN begun AS b USING (rank)
)
SELECT rank, ts, "end", ts - window_ts AS unknown_ns FROM known
