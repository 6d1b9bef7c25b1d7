-- The stretch of time that the numbers speak of: the complete steps, or the whole recording without steps.
--
-- needs: _step_bounds
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
SELECT rank, min(ts) AS ts, max("end") AS "end"
FROM _step_bounds
WHERE NOT partial
GROUP BY rank
