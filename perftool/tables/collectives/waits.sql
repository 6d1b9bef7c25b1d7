-- One row per rank, step and process group: how long the rank waits for others in collectives recorded on several
-- ranks.
--
-- needs: _collective_waits
-- empty without: _collective_waits
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, number of the step; NULL when the recording has no steps
-- column side: VARCHAR, 'device' or 'host'
-- column group_name: VARCHAR, process group, when recorded
-- column members: VARCHAR, ranks of the group, when recorded
-- column waited_ns: BIGINT, waiting time in ns; overlapping waits count once
-- column wire_ns: BIGINT, sum of the transfer times; the transfer time of a collective is its duration on the rank that waits least
-- column collectives: BIGINT, number of collectives
-- column last: BIGINT, number of collectives in which this rank arrived last
SELECT rank, step, side, group_name, members, sum(waited_ns)::BIGINT AS waited_ns, sum(wire_ns)::BIGINT AS wire_ns, count(*) AS collectives,
       count(*) FILTER (place = 1) AS last
FROM _collective_waits
GROUP BY rank, step, side, group_name, members
ORDER BY rank, step, side, group_name, members
