-- One row per rank: the time that its numbers cover, that is, its complete steps, or the whole recording if it has no
-- steps.
--
-- needs: _step_bounds
-- empty without: _step_bounds
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start of the first complete step in ns
-- column dur: BIGINT, duration in ns, including time between steps; shares of time are relative to it
-- column end: BIGINT, end of the last complete step in ns
-- column host_ts: BIGINT, start of the first step on the host, which runs ahead of the device
-- column host_end: BIGINT, end of the last step on the host
-- column steps: BIGINT, number of complete steps, the divisor of per-step numbers; 1 for a recording without steps
SELECT rank, min(ts) AS ts, max("end") - min(ts) AS dur, max("end") AS "end", min(host_ts) AS host_ts,
       max(host_end) AS host_end, count(*) AS steps
FROM _step_bounds
WHERE NOT partial
GROUP BY rank
ORDER BY rank
