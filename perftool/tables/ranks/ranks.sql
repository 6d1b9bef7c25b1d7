-- One row per rank of the run. Times are totals over the window of the rank.
--
-- needs: _ranks, _rank_totals, steps, clocks, waits
-- empty without: _ranks
-- column rank: INTEGER, distributed rank
-- column host: VARCHAR, machine that the rank ran on, according to the metadata, the name or the folder of its trace; NULL when unknown
-- column status: VARCHAR, ok, missing (the run has this rank, but its trace was not given) or unreadable
-- column steps: BIGINT, number of complete steps
-- column step_ns: BIGINT, median duration of the complete steps
-- column window_ns: BIGINT, duration of the window
-- column recorded_ns: BIGINT, time from the first to the last activity of the recording, on the host or the device
-- column busy_ns: BIGINT, busy time of the device; NULL if there is no device work, like all values derived from the device
-- column idle_ns: BIGINT, idle time of the device, in the part of the window in which the trace shows the device
-- column compute_ns: BIGINT, time while a kernel other than a collective runs
-- column collective_ns: BIGINT, time while a collective runs
-- column exposed_ns: BIGINT, time while a collective runs and no other kernel does
-- column waited_ns: BIGINT, time spent waiting for other ranks in collectives; NULL when no collective could be matched with other ranks
-- column lost_kernels_ratio: DOUBLE, share of the kernel launches (on Gaudi, launches of recipes) without any device work in the median complete step, apart from graph capture; NULL if the steps launch no kernel
-- column offset_ns: BIGINT, clocks.offset_ns
-- column spread_ns: BIGINT, clocks.spread_ns
WITH lengths AS (
    SELECT rank, count(step) AS steps, median(dur) FILTER (step IS NOT NULL)::BIGINT AS step_ns
    FROM steps WHERE NOT partial GROUP BY rank
),
waiting AS (
    SELECT rank, coalesce(sum(waited_ns) FILTER (side = 'device'), sum(waited_ns))::BIGINT AS ns FROM waits GROUP BY rank
)
SELECT r.rank, r.host, r.status, coalesce(l.steps, 0) AS steps, l.step_ns, t.window_ns, t.recorded_ns,
       CASE WHEN t.device THEN t.busy_ns END AS busy_ns, CASE WHEN t.device THEN t.window_ns - t.unknown_ns - t.busy_ns END AS idle_ns,
       CASE WHEN t.device THEN coalesce(t.compute_ns, 0) END AS compute_ns,
       CASE WHEN t.collective_ns > 0 THEN t.collective_ns END AS collective_ns,
       CASE WHEN t.collective_ns > 0 THEN coalesce(t.exposed_ns, 0) END AS exposed_ns,
       w.ns AS waited_ns, t.lost_kernels_ratio, c.offset_ns, c.spread_ns
FROM _ranks AS r
LEFT JOIN _rank_totals AS t USING (rank)
LEFT JOIN lengths AS l USING (rank)
LEFT JOIN waiting AS w USING (rank)
LEFT JOIN clocks AS c USING (rank)
ORDER BY r.rank
