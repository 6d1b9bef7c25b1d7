-- One row per part of a gap with one cause. The parts of all gaps add up to the idle time exactly.
--
-- needs: _gaps, _timeline
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, compile, fallback, dataloader, collective, sync, copy, graph_build, launch_latency, queued (the work was submitted before the gap began), optimizer, launch_call, framework_op, python or unknown
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
SELECT g.id AS gap, t.rank,
       CASE WHEN mask & class_bits([23]) > 0 THEN 'queued'
            WHEN mask & class_bits([22]) > 0 THEN 'launch_latency'
            WHEN mask & class_bits([21]) > 0 THEN 'compile'
            WHEN mask & class_bits([12]) > 0 THEN 'fallback'
            WHEN mask & class_bits([14]) > 0 THEN 'dataloader'
            WHEN mask & class_bits([16, 19]) > 0 THEN 'collective'
            WHEN mask & class_bits([20]) > 0 THEN 'sync'
            WHEN mask & class_bits([11]) > 0 THEN 'copy'
            WHEN mask & class_bits([13]) > 0 THEN 'graph_build'
            WHEN mask & class_bits([17, 25]) > 0 THEN 'optimizer'
            WHEN mask & class_bits([10]) > 0 THEN 'launch_call'
            WHEN mask & class_bits([15]) > 0 THEN 'framework_op'
            WHEN mask & class_bits([18]) > 0 THEN 'python'
            ELSE 'unknown' END AS cause,
       t.ts, t."end" - t.ts AS dur, t."end"
FROM (SELECT * FROM _timeline WHERE mask & class_bits([0, 1, 2, 3, 4, 5]) = 0) AS t
ASOF JOIN _gaps AS g ON g.rank = t.rank AND t.ts >= g.ts
WHERE t."end" <= g."end"
ORDER BY g.id, t.ts
