-- Idle time of each rank by cause, inside the window.
--
-- needs: gap_causes
-- empty without: gap_causes
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, gap_causes.cause
-- column total_ns: BIGINT, idle time
-- column count: BIGINT, number of gap parts
-- column ts: BIGINT, start of the longest part in ns
-- column longest_ns: BIGINT, duration of the longest part
SELECT rank, cause AS name, sum(dur)::BIGINT AS total_ns, count(*) AS count,
       arg_min(ts, (-dur, ts)) AS ts, max(dur) AS longest_ns
FROM gap_causes GROUP BY rank, cause
