-- One row per stretch of the window in which the device is idle, with its main cause.
--
-- needs: _gaps, gap_causes, steps
-- empty without: _gaps
-- column id: BIGINT, identifies the gap
-- column rank: INTEGER, distributed rank
-- column step: INTEGER, step in which the gap begins
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column cause: VARCHAR, the cause (gap_causes.cause) of the largest part of the gap
-- column cause_ns: BIGINT, the part of the gap with this cause
WITH by_cause AS (
    SELECT gap, cause, sum(dur)::BIGINT AS ns FROM gap_causes GROUP BY gap, cause
),
main_cause AS (
    SELECT gap, first(cause ORDER BY ns DESC, cause DESC) AS cause, max(ns) AS cause_ns FROM by_cause GROUP BY gap
)
SELECT g.id, g.rank, s.step, g.ts, g."end" - g.ts AS dur, g."end", m.cause, m.cause_ns
FROM _gaps AS g
JOIN main_cause AS m ON m.gap = g.id
ASOF LEFT JOIN steps AS s ON s.rank = g.rank AND g.ts >= s.ts
ORDER BY g.id
