-- Gaudi: one row per sample of a hardware counter (SPMU). A sample states how much the counter changed since the
-- previous sample. A counter that did not change is not sampled.
--
-- needs: tracks, _vocabulary
-- empty without: tracks.engine
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, lane of the counter (tracks.id)
-- column lane: VARCHAR, name of the lane
-- column name: VARCHAR, name of the counter
-- column kind: VARCHAR, back_pressure or partial_writes; NULL for counters that no rule reads
-- column since: BIGINT, time of the previous sample on the lane in ns, NULL for the first sample
-- column ts: BIGINT, time of the sample in ns
-- column value: BIGINT, change of the counter since the previous sample; negative if the counter decreased (the file writes the decrease as a wrapped unsigned 64-bit number)
WITH samples AS (
    SELECT r.rank, r.pid, r.tid, r.name, r.ts, try_cast(arg(r.args, r.name) AS HUGEINT) AS value
    FROM raw AS r WHERE r.ph = 'C' AND lower(r.cat) IN (SELECT pattern FROM _vocabulary WHERE subject = 'counter' AND role = 'category')
),
kinds AS (
    SELECT n.name, min(v.role) AS kind
    FROM (SELECT DISTINCT name FROM samples) AS n
    JOIN _vocabulary AS v ON v.subject = 'counter' AND v.role <> 'category' AND lower(n.name) GLOB v.pattern
    GROUP BY n.name
)
SELECT s.rank, t.id AS track, t.thread AS lane, s.name, k.kind,
       lag(s.ts) OVER (PARTITION BY s.rank, t.id, s.name ORDER BY s.ts) AS since, s.ts,
       (CASE WHEN s.value >= 1::HUGEINT << 63 THEN s.value - (1::HUGEINT << 64) ELSE s.value END)::BIGINT AS value
FROM samples AS s
JOIN tracks AS t ON t.rank = s.rank AND t.pid = coalesce(s.pid, '') AND t.tid = coalesce(s.tid, '')
LEFT JOIN kinds AS k USING (name)
WHERE s.ts IS NOT NULL AND s.value BETWEEN -(1::HUGEINT << 63) AND (1::HUGEINT << 64) - 1
ORDER BY s.rank, s.ts, t.id, s.name
