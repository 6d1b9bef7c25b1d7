-- One row per rank and role of a process group: how often it is first and last at collectives, and how long it waits.
--
-- needs: _collective_waits, process_groups
-- empty without: _collective_waits
-- column rank: INTEGER, distributed rank
-- column role: VARCHAR, process_groups.role
-- column collectives: BIGINT, number of collectives
-- column last: BIGINT, number of collectives in which the rank arrived last, that is, in which it spent the least time
-- column first: BIGINT, number of collectives in which the rank waited longest
-- column waited_ns: BIGINT, mean waiting time of the rank per step
-- column exposed_ns: BIGINT, the part of waited_ns that is not hidden behind compute
WITH roles AS (SELECT DISTINCT group_name, role, unnest(ranks) AS rank FROM process_groups)
SELECT c.rank, r.role, count(DISTINCT c.match) AS collectives, count(DISTINCT c.match) FILTER (c.place = 1) AS last,
       count(DISTINCT c.match) FILTER (c.place = c.ranks) AS first,
       (sum(c.waited_ns) / count(DISTINCT c.step))::BIGINT AS waited_ns,
       (sum(c.exposed_ns) / count(DISTINCT c.step))::BIGINT AS exposed_ns
FROM _collective_waits AS c JOIN roles AS r ON r.rank = c.rank AND r.group_name IS NOT DISTINCT FROM c.group_name
WHERE c.step IS NOT NULL AND c.ends_together
GROUP BY c.rank, r.role
ORDER BY c.rank, r.role
