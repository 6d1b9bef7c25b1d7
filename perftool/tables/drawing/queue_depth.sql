-- The amount of work queued on a rank's devices: a row for each change.
--
-- absent: no device work could be matched with the host call that submitted it
-- needs: device_ops, launches
-- empty without: launches
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, time of the change in ns
-- column depth: BIGINT, units of work submitted but not started, from this moment on
WITH submitted AS (
    SELECT d.rank, l.ts AS called, greatest(d.ts, l.ts) AS begun
    FROM device_ops AS d JOIN launches AS l ON l.id = d.launch WHERE d.valid
),
changes AS (
    SELECT rank, ts, sum(change) AS change
    FROM (SELECT rank, called AS ts, 1 AS change FROM submitted UNION ALL SELECT rank, begun, -1 FROM submitted)
    GROUP BY rank, ts
)
SELECT rank, ts, sum(change) OVER (PARTITION BY rank ORDER BY ts)::BIGINT AS depth FROM changes ORDER BY rank, ts
