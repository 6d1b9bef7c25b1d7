-- One row per kind of collective in the steps of a run on several ranks: its size, and its speed once all ranks have
-- arrived. On the last rank to arrive, a collective takes only the transfer time (wire_ns); on other ranks, the
-- additional time is waiting.
--
-- The size S is defined as in nccl-tests: the bytes that each rank reduces, or has gathered at the end. The algorithm
-- bandwidth is S divided by the time. The bus bandwidth is comparable to the rate of a link: it is the algorithm
-- bandwidth times 2(n-1)/n for an all-reduce of n ranks, and times (n-1)/n for an all-gather and a reduce-scatter.
-- All-to-alls have no bandwidth, because their ranks may send different amounts.
--
-- needs: _collective_matches
-- empty without: _collective_matches
-- column side: VARCHAR, 'device' or 'host'
-- column name: VARCHAR, operation
-- column group_name: VARCHAR, process group, when recorded
-- column ranks: INTEGER[], ranks whose traces show the collectives
-- column members: BIGINT, number of ranks in the group
-- column bytes: BIGINT, bytes sent by each rank; NULL when not recorded, and for an all-to-all
-- column steps: BIGINT, number of steps in which the collectives occur
-- column calls: BIGINT, number of calls
-- column wire_ns: BIGINT, median transfer time of a call
-- column wire_total_ns: BIGINT, sum of the transfer times of all calls
-- column waited_ns: BIGINT, mean time that a rank waits for others in a call
-- column algorithm_bandwidth: DOUBLE, S per second in the median call; NULL if the size is unknown or the operation has no bandwidth
-- column bus_bandwidth: DOUBLE, algorithm_bandwidth converted to the rate of a link
WITH calls AS (
    SELECT match, side, name, min(operation) AS operation, group_name, members, bytes, step, greatest(count(*), max(group_size)) AS size,
           min(dur) AS wire_ns, avg(dur) - min(dur) AS waited_ns, list(rank ORDER BY rank) AS ranks
    FROM _collective_matches WHERE step IS NOT NULL AND ends_together
    GROUP BY match, side, name, group_name, members, bytes, step
),
kinds AS (
    SELECT side, name, min(operation) AS operation, group_name, members, bytes, min(ranks) AS ranks,
           max(size)::BIGINT AS n, count(DISTINCT step) AS steps, count(*) AS calls,
           median(wire_ns) AS wire_ns, sum(wire_ns) AS wire_total_ns, avg(waited_ns) AS waited_ns
    FROM calls GROUP BY side, name, group_name, members, bytes
),
rates AS (
    SELECT *, CASE operation WHEN 'all_reduce' THEN bytes WHEN 'reduce_scatter' THEN bytes WHEN 'all_gather' THEN bytes
    * n END               / nullif(wire_ns, 0) * 1e9 AS rate
    FROM kinds
)
SELECT side, name, group_name, ranks, n AS members, bytes, steps, calls, wire_ns::BIGINT AS wire_ns,
       wire_total_ns::BIGINT AS wire_total_ns, waited_ns::BIGINT AS waited_ns, rate AS algorithm_bandwidth,
       rate * CASE operation WHEN 'all_reduce' THEN 2 ELSE 1 END * (n - 1) / n AS bus_bandwidth
FROM rates
ORDER BY side, wire_total_ns DESC, name, group_name, ranks, bytes
