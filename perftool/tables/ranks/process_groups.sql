-- One row per process group of the run: its role, and its transfer and waiting time per step.
--
-- On the last rank to arrive, a collective takes only the transfer time; on other ranks, the additional time is
-- waiting. In a pipeline, the group consists of all ranks that send to each other.
--
-- needs: _collective_waits, _group_roles, ranks
-- empty without: _collective_waits
-- column role: VARCHAR, description of the group in the recordings (tp, dp, ...), else its shape: all, inner (neighbours), outer (every n-th rank) or group
-- column named: BOOLEAN, whether the recordings contain the role
-- column group_name: VARCHAR, process group, when recorded
-- column ranks: INTEGER[], ranks whose traces show the group
-- column hosts: BIGINT, number of hosts of these ranks; NULL when unknown
-- column collectives: BIGINT, number of collectives in all steps
-- column wire_ns: BIGINT, transfer time per step
-- column waited_ns: BIGINT, mean time per step that a rank waits for others in the group's collectives
WITH calls AS (
    SELECT match, min(group_name) AS group_name, list(rank ORDER BY rank) AS pair, bool_or(passes) AS passes,
           min(wire_ns) AS wire_ns, sum(waited_ns) AS waited_ns
    FROM _collective_waits WHERE step IS NOT NULL AND ends_together GROUP BY match
),
chains AS (
    SELECT group_name, list_sort(list(DISTINCT rank)) AS ranks
    FROM (SELECT group_name, unnest(pair) AS rank FROM calls WHERE passes AND group_name IS NOT NULL) GROUP BY group_name
),
groups AS (
    SELECT c.group_name, coalesce(p.ranks, c.pair) AS ranks, count(*) AS collectives,
           sum(c.wire_ns) AS wire_ns, sum(c.waited_ns) AS waited_ns
    FROM calls AS c LEFT JOIN chains AS p ON c.passes AND p.group_name = c.group_name GROUP BY ALL
),
whole AS (SELECT count(DISTINCT rank) AS ranks, count(DISTINCT step) AS steps FROM _collective_waits WHERE step IS NOT NULL),
shaped AS (
    SELECT g.*, w.steps, CASE WHEN len(g.ranks) = w.ranks THEN 'all'
                              WHEN g.ranks[-1] - g.ranks[1] = len(g.ranks) - 1 THEN 'inner'
                              WHEN len(list_distinct(list_transform(g.ranks[2:], lambda r, i: r - g.ranks[i]))) = 1 THEN 'outer'
                              ELSE 'group' END AS shape
    FROM groups AS g, whole AS w
)
SELECT coalesce(r.role, s.shape) AS role, r.role IS NOT NULL AS named, s.group_name, s.ranks,
       (SELECT CASE WHEN count(k.host) = count(*) THEN count(DISTINCT k.host) END FROM ranks AS k WHERE list_contains(s.ranks, k.rank)) AS hosts,
       s.collectives, (s.wire_ns / s.steps)::BIGINT AS wire_ns, (s.waited_ns / s.steps / len(s.ranks))::BIGINT AS waited_ns
FROM shaped AS s LEFT JOIN _group_roles AS r USING (group_name)
ORDER BY role, s.ranks, s.group_name
