-- One row per step and sole straggler: the rank came last to the collectives of a group, with its delay after the
-- next-to-last rank. Waiting in one group does not make a rank late in another, so waiting counts over all groups together.
-- Lengths need no common clock.
--
-- needs: waits, _step_work, ranks
-- empty without: waits
-- column rank: INTEGER, distributed rank
-- column label: VARCHAR, the rank and its host, when known
-- column step: INTEGER, number of the step
-- column alone_ns: BIGINT, its shortfall in waiting against every other rank of the group: the cost of its lateness
-- column kept_ns: BIGINT, its shortfall in waiting against the rank that waited longest
-- column waiting: BIGINT, ranks of the run that waited for it
-- column cause: VARCHAR, what it does longer than the median rank in this step, as in rank_excess; NULL when the trace shows nothing that accounts for half of alone_ns
-- column own_ns: BIGINT, time of that on this rank
-- column median_ns: BIGINT, on the median rank; of two ranks, on the one with less
WITH own AS (
    SELECT rank, step, sum(waited_ns)::BIGINT AS ns FROM waits WHERE side = 'device' AND step IS NOT NULL GROUP BY rank, step
),
grouped AS (
    SELECT w.step, arg_min(w.rank, (o.ns, w.rank)) AS rank, max(o.ns) - min(o.ns) AS kept_ns, min(o.ns, 2)[2] - min(o.ns) AS alone_ns
    FROM waits AS w JOIN own AS o USING (rank, step) WHERE w.side = 'device'
    GROUP BY w.step, w.group_name, w.members HAVING count(*) > 1
),
late AS (
    SELECT step, rank, max(alone_ns) AS alone_ns, max(kept_ns) AS kept_ns FROM grouped
    WHERE alone_ns > 0 GROUP BY step, rank
),
counted AS (
    SELECT l.step, l.rank, count(*) AS waiting
    FROM late AS l JOIN own AS m ON m.step = l.step AND m.rank = l.rank JOIN own AS o ON o.step = l.step AND o.rank <> l.rank
    WHERE o.ns >= m.ns + l.alone_ns / 2 GROUP BY l.step, l.rank
),
usual AS (
    SELECT step, quantile_disc(compute_ns, 0.5) AS compute_ns, quantile_disc(copy_ns, 0.5) AS copy_ns,
           quantile_disc(dataloader_ns, 0.5) AS dataloader_ns, quantile_disc(compile_ns, 0.5) AS compile_ns,
           quantile_disc(host_ns, 0.5) AS host_ns
    FROM _step_work GROUP BY step
),
told AS (
    SELECT l.step, l.rank, unnest([
        {'cause': 'compute', 'own': w.compute_ns, 'usual': u.compute_ns}, {'cause': 'copy', 'own': w.copy_ns, 'usual': u.copy_ns},
        {'cause': 'dataloader', 'own': w.dataloader_ns, 'usual': u.dataloader_ns},
        {'cause': 'compile', 'own': w.compile_ns, 'usual': u.compile_ns}, {'cause': 'host', 'own': w.host_ns, 'usual': u.host_ns}
    ]) AS part
    FROM late AS l JOIN _step_work AS w USING (rank, step) JOIN usual AS u USING (step)
),
more AS (
    SELECT step, rank, arg_max(part, (part.own - part.usual, part.cause)) AS part FROM told GROUP BY step, rank
)
SELECT l.rank, rank_label(l.rank, r.host) AS label, l.step, l.alone_ns, l.kept_ns, c.waiting,
       CASE WHEN explains THEN part.cause END AS cause, CASE WHEN explains THEN part.own END AS own_ns,
       CASE WHEN explains THEN part.usual::BIGINT END AS median_ns
FROM late AS l
JOIN counted AS c USING (step, rank)
JOIN ranks AS r USING (rank)
LEFT JOIN (SELECT m.step, m.rank, m.part, m.part.own - m.part.usual >= 0.5 * k.alone_ns AS explains
           FROM more AS m JOIN late AS k USING (step, rank)) AS p USING (step, rank)
ORDER BY l.step, l.rank
