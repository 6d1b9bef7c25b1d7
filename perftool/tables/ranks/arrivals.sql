-- One row per rank and role of a process group: how often it is last and first at collectives, and how long it waits.
--
-- needs: _collective_matches, process_groups
-- empty without: _collective_matches
-- column rank: INTEGER, distributed rank
-- column role: VARCHAR, process_groups.role
-- column collectives: BIGINT, number of collectives
-- column last: BIGINT, collectives in which the others waited for it: it spends least time there
-- column first: BIGINT, collectives in which it waited longest
-- column waited_ns: BIGINT, its mean waiting per step
-- column exposed_ns: BIGINT, the part of it that no compute can hide: the waiting beyond the work that ran during the collective
WITH compared AS (
    SELECT m.rank, m.match, m.step, m.group_name, m.dur, m.overlapped_ns, min(m.dur) OVER w AS wire_ns,
           row_number() OVER (PARTITION BY m.match ORDER BY m.dur, m.rank) AS place, count(*) OVER w AS ranks
    FROM _collective_matches AS m WHERE m.step IS NOT NULL AND m.ends_together AND m.side = 'device'
    WINDOW w AS (PARTITION BY m.match)
),
roles AS (
    SELECT DISTINCT p.group_name, p.role, unnest(p.ranks) AS rank FROM process_groups AS p
)
SELECT c.rank, r.role, count(DISTINCT c.match) AS collectives, count(DISTINCT c.match) FILTER (c.place = 1) AS last,
       count(DISTINCT c.match) FILTER (c.place = c.ranks) AS first,
       (sum(c.dur - c.wire_ns) / count(DISTINCT c.step))::BIGINT AS waited_ns,
       (sum(greatest(c.dur - c.wire_ns - c.overlapped_ns, 0)) / count(DISTINCT c.step))::BIGINT AS exposed_ns
FROM compared AS c JOIN roles AS r ON r.rank = c.rank AND r.group_name IS NOT DISTINCT FROM c.group_name
GROUP BY c.rank, r.role
ORDER BY c.rank, r.role
