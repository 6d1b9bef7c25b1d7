-- The time of every complete event, before it is known how they nest.
--
-- needs: tracks, _pairs
-- column id: BIGINT, row of the event in the raw table (of the begin, for begin and end)
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, the lane
-- column side: VARCHAR, of the track
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH complete AS (
    SELECT rowid AS id, rank, pid, tid, ts, ts + dur AS "end"
    FROM raw WHERE ph = 'X' AND ts IS NOT NULL AND dur IS NOT NULL
    UNION ALL
    SELECT p.id, r.rank, r.pid, r.tid, r.ts, p."end"
    FROM _pairs AS p JOIN raw AS r ON r.rowid = p.id
)
SELECT c.id, c.rank, t.id AS track, t.side, c.ts, c."end"
FROM complete AS c
JOIN tracks AS t ON t.rank = c.rank AND t.pid = coalesce(c.pid, '') AND t.tid = coalesce(c.tid, '')
WHERE c."end" >= c.ts OR t.side = 'device'
