-- The complete steps of a rank together: what per-step numbers are divided by.
--
-- needs: steps
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start of the first complete step in ns
-- column end: BIGINT, end of the last complete step in ns
-- column host_ts: BIGINT, start of the first one on the host, which runs ahead of the device
-- column host_end: BIGINT, end of the last one on the host
-- column ns: BIGINT, from ts to end: what shares of the time are shares of, also where there is time between the steps
-- column steps: BIGINT, how many there are
SELECT rank, min(ts) AS ts, max("end") AS "end", min(host_ts) AS host_ts, max(host_end) AS host_end,
       max("end") - min(ts) AS ns, count(*) AS steps
FROM steps WHERE NOT partial GROUP BY rank
