-- Idle time of the device by cause, for drawing: neighbouring parts of gaps with the same cause form one stretch,
-- unless the device worked between them.
--
-- needs: gap_causes
-- empty without: gap_causes
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, gap_causes.cause
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
WITH parts AS (
    SELECT *, sum((cause, ts) IS DISTINCT FROM (before_cause, before_end)) OVER (PARTITION BY rank ORDER BY ts) AS part
    FROM (SELECT rank, cause, ts, "end", lag(cause) OVER by_time AS before_cause, lag("end") OVER by_time AS before_end
          FROM gap_causes WINDOW by_time AS (PARTITION BY rank ORDER BY ts))
)
SELECT rank, min(cause) AS cause, min(ts) AS ts, (max("end") - min(ts))::BIGINT AS dur
FROM parts GROUP BY rank, part ORDER BY rank, ts
