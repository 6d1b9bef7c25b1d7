-- One row per rank, step and process group: the rank's waiting for others in collectives recorded on several ranks.
-- A collective takes least time on the last rank to arrive, so the excess on other ranks is waiting. Lengths need no
-- common clock; clocks only expose false matches.
--
-- needs: _collective_matches, clocks
-- empty without: _collective_matches
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column side: VARCHAR, 'device' or 'host'
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, its ranks, when recorded
-- column waited_ns: BIGINT, waiting in ns, summed over the collectives
-- column wire_ns: BIGINT, the rest: the time of each on the rank that waits least
-- column collectives: BIGINT, number of collectives
-- column last: BIGINT, number of collectives in which this rank came last
WITH aligned AS (
    SELECT m.*, m.ts + c.offset_ns AS begins, m."end" + c.offset_ns AS ends, c.spread_ns
    FROM _collective_matches AS m JOIN clocks AS c USING (rank)
),
compared AS (
    SELECT *, min(dur) OVER together AS shortest, count(begins) OVER together = count(*) OVER together AS comparable,
           max(begins) OVER together - min(ends) OVER together AS apart_ns,
           1000 + 4 * max(spread_ns) OVER together AS tolerance_ns,
           row_number() OVER (PARTITION BY match ORDER BY dur, rank) = 1 AS shortest_here
    FROM aligned WINDOW together AS (PARTITION BY match)
)
SELECT rank, step, side, group_name, members, sum(dur - shortest)::BIGINT AS waited_ns, sum(shortest)::BIGINT AS wire_ns, count(*) AS collectives,
       count(*) FILTER (shortest_here) AS last
FROM compared
-- No rank can leave a collective before the last one has arrived.
WHERE NOT (comparable AND ends_together AND apart_ns > tolerance_ns)
GROUP BY rank, step, side, group_name, members
ORDER BY rank, step, side, group_name, members
