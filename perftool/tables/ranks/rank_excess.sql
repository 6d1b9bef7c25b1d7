-- How much longer each activity takes per step on each rank than on the median rank. This may explain why the rank is
-- last at collectives. The table has rows only if two or more ranks have steps.
--
-- needs: _step_work, _collective_waits
-- empty without: _step_work
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, compute (its kernels), dataloader, copy, compile, host (the device is idle during other activity of the host) or link (its collectives, without waiting for others)
-- column own_ns: BIGINT, mean time per step on this rank
-- column median_ns: BIGINT, mean time per step on the median rank; if there are two ranks, on the rank with less time
-- column excess_ns: BIGINT, own_ns - median_ns
WITH wire AS (
    SELECT rank, sum(wire_ns) / count(DISTINCT step) AS ns FROM _collective_waits
    -- A call on the host may return before its collective ends.
    WHERE (side = 'device' OR ends_together) AND step IS NOT NULL GROUP BY rank
),
work AS (
    SELECT rank, avg(compute_ns) AS compute_ns, avg(copy_ns) AS copy_ns, avg(dataloader_ns) AS dataloader_ns,
           avg(compile_ns) AS compile_ns, avg(host_ns) AS host_ns
    FROM _step_work GROUP BY rank
),
totals AS (
    SELECT rank, unnest([
        {'cause': 'compute', 'ns': compute_ns}, {'cause': 'dataloader', 'ns': dataloader_ns},
        {'cause': 'copy', 'ns': copy_ns}, {'cause': 'compile', 'ns': compile_ns}, {'cause': 'host', 'ns': host_ns},
        {'cause': 'link', 'ns': w.ns}
    ]) AS part
    FROM work LEFT JOIN wire AS w USING (rank)
),
own AS (SELECT rank, part.cause AS cause, coalesce(part.ns, 0)::BIGINT AS own_ns FROM totals),
compared AS (SELECT *, (quantile_disc(own_ns, 0.5) OVER cause)::BIGINT AS median_ns, count(*) OVER cause AS ranks FROM own
             WINDOW cause AS (PARTITION BY cause))
SELECT rank, cause, own_ns, median_ns, own_ns - median_ns AS excess_ns FROM compared WHERE ranks > 1 ORDER BY rank, cause
