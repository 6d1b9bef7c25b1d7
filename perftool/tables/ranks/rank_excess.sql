-- What each rank does longer in a step than the median rank: why it may come last to collectives. Rows only for two
-- ranks and more.
--
-- needs: _rank_totals, _idle_totals
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, compute (its kernels), dataloader, copy (of inputs), compile, or host (the device is idle while the host does anything else)
-- column own_ns: BIGINT, time per step on this rank
-- column median_ns: BIGINT, time per step on the median rank
-- column excess_ns: BIGINT, own_ns less median_ns
WITH host AS (
    SELECT rank, sum(total_ns) AS ns FROM _idle_totals
    WHERE name NOT IN ('dataloader', 'copy', 'compile', 'collective', 'sync', 'queued', 'launch_latency', 'unknown')
    GROUP BY rank
),
totals AS (
    SELECT rank, steps, unnest([
        {'cause': 'compute', 'ns': compute_ns}, {'cause': 'dataloader', 'ns': loading_ns},
        {'cause': 'copy', 'ns': copying_ns}, {'cause': 'compile', 'ns': compiling_ns}, {'cause': 'host', 'ns': h.ns}
    ]) AS part
    FROM _rank_totals LEFT JOIN host AS h USING (rank)
    WHERE steps > 0
),
own AS (SELECT rank, part.cause AS cause, (coalesce(part.ns, 0) / steps)::BIGINT AS own_ns FROM totals),
compared AS (SELECT *, (median(own_ns) OVER cause)::BIGINT AS median_ns, count(*) OVER cause AS ranks FROM own
             WINDOW cause AS (PARTITION BY cause))
SELECT rank, cause, own_ns, median_ns, own_ns - median_ns AS excess_ns FROM compared WHERE ranks > 1 ORDER BY rank, cause
