-- One row per part of a gap with one cause. The parts of all gaps add up to the idle time exactly.
--
-- needs: _gaps, _host_activity, device_ops, launches
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, compile, fallback, dataloader, collective, sync, copy, graph_build, launch_latency, queued (the work was submitted before the gap began), optimizer, launch_call, framework_op, python or unknown
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
WITH ended_by AS (
    SELECT g.id, g.rank, g.ts, g."end", min(l."end") AS submitted
    FROM _gaps AS g
    JOIN device_ops AS d ON d.rank = g.rank AND d.ts = g."end" AND d.valid
    JOIN launches AS l ON l.id = d.launch
    GROUP BY ALL
),
activity AS (
    SELECT * FROM interval_union(_host_activity)
    UNION ALL SELECT rank, 12, ts, "end" FROM _gaps
    -- Once the work that ends the gap is submitted, the host is no longer what keeps the device waiting.
    UNION ALL SELECT rank, 13, submitted, "end" FROM ended_by WHERE submitted > ts AND submitted < "end"
    UNION ALL SELECT rank, 14, ts, "end" FROM ended_by WHERE submitted <= ts
),
idle AS (
    SELECT rank, ts, "end", mask, mask & 4095 AS doing FROM interval_sweep(activity) WHERE mask & 4096 > 0
)
SELECT g.id AS gap, i.rank,
       CASE WHEN mask & 16384 > 0 THEN 'queued'
            WHEN mask & 8192 > 0 THEN 'launch_latency'
            WHEN doing = 0 THEN 'unknown'
            ELSE ['compile', 'fallback', 'dataloader', 'collective', 'sync', 'copy', 'graph_build', 'optimizer',
                  'launch_call', 'framework_op', 'python'][(bit_count((doing & -doing) - 1) + 1)::INTEGER]
       END AS cause,
       i.ts, i."end" - i.ts AS dur, i."end"
FROM idle AS i
ASOF JOIN _gaps AS g ON g.rank = i.rank AND i.ts >= g.ts
ORDER BY g.id, i.ts
