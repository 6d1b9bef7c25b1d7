-- The time that each rank waits in each collective recorded on several ranks. The last rank to arrive does not wait, so
-- the collective is shortest there; on other ranks, the additional time is waiting. Comparing durations needs no common
-- clock; the clocks only rule out false matches.
--
-- needs: _collective_matches, clocks
-- empty without: _collective_matches
-- column match: BIGINT, identifies the collective
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column side: VARCHAR, 'device' or 'host'
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, ranks of the group, when recorded
-- column ends_together: BOOLEAN, whether no rank can leave the collective before all have arrived
-- column passes: BOOLEAN, whether this is a send and its receive
-- column wire_ns: BIGINT, duration of the collective on the rank that waits least
-- column waited_ns: BIGINT, waiting time of this rank, excluding time while it also waits in an earlier collective of the group
-- column exposed_ns: BIGINT, the part of waited_ns that is not hidden behind compute
-- column place: BIGINT, position of the rank by waiting time, 1 for the shortest
-- column ranks: BIGINT, number of ranks whose traces show the collective
-- column last_rank: INTEGER, the rank that arrived last, that is, waits least
WITH compared AS (
    SELECT m.*, min(m.dur) OVER together AS shortest, count(c.offset_ns) OVER together = count(*) OVER together AS comparable,
           max(m.ts + c.offset_ns) OVER together - min(m."end" + c.offset_ns) OVER together AS apart_ns,
           1000 + 4 * max(c.spread_ns) OVER together AS tolerance_ns,
           row_number() OVER (PARTITION BY m.match ORDER BY m.dur, m.rank) AS place, count(*) OVER together AS ranks,
           arg_min(m.rank, (m.dur, m.rank)) OVER together AS last_rank
    FROM _collective_matches AS m JOIN clocks AS c USING (rank) WINDOW together AS (PARTITION BY m.match)
),
waiting AS (
    SELECT *, ts + dur - shortest AS until,
           max(until) OVER (PARTITION BY rank, step, side, group_name ORDER BY ts, match
                            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM compared
    -- If the clocks show that a rank leaves before the last rank arrives, the calls do not belong to the same
    -- collective.
    WHERE NOT (comparable AND ends_together AND apart_ns > tolerance_ns)
)
SELECT match, rank, step, side, group_name, members, ends_together, sends > 0 AS passes, shortest AS wire_ns,
       greatest(until - greatest(ts, coalesce(before, ts)), 0) AS waited_ns,
       greatest(waited_ns - coalesce(overlapped_ns, 0), 0) AS exposed_ns, place, ranks, last_rank
FROM waiting
