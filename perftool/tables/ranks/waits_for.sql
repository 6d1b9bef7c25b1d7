-- One row per rank, role of a process group, and rank that arrived last at their collectives.
--
-- needs: _collective_waits, process_groups
-- empty without: _collective_waits
-- column rank: INTEGER, the rank that waits
-- column role: VARCHAR, process_groups.role
-- column last_rank: INTEGER, the rank that arrived last, that is, spent the least time in the collective
-- column collectives: BIGINT, number of collectives in all steps
-- column waited_ns: BIGINT, mean waiting time per step
-- column exposed_ns: BIGINT, the part of waited_ns that is not hidden behind compute
WITH met AS (SELECT * FROM _collective_waits WHERE step IS NOT NULL AND ends_together),
lengths AS (SELECT rank, count(DISTINCT step) AS steps FROM met GROUP BY rank),
roles AS (SELECT DISTINCT group_name, role, unnest(ranks) AS rank FROM process_groups)
SELECT c.rank, r.role, c.last_rank, count(DISTINCT c.match) AS collectives,
       (sum(c.waited_ns) / max(l.steps))::BIGINT AS waited_ns, (sum(c.exposed_ns) / max(l.steps))::BIGINT AS exposed_ns
FROM met AS c JOIN lengths AS l USING (rank)
JOIN roles AS r ON r.rank = c.rank AND r.group_name IS NOT DISTINCT FROM c.group_name
WHERE c.last_rank <> c.rank
GROUP BY c.rank, r.role, c.last_rank
ORDER BY c.rank, r.role, c.last_rank
