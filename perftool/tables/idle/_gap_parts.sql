-- The gaps, split by what the threads that feed the device are doing. gap_causes interprets this activity.
--
-- needs: _gaps, _timeline, _mask_meanings
-- empty without: _gaps
-- column gap: BIGINT, the gap (gaps.id)
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, gap_causes.cause, except causes that need more evidence
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column resumes: BOOLEAN, whether the gap continues after this part
WITH stretches AS (
    SELECT t.rank, t.ts, g.id AS gap, g."end" AS gap_end, t.ts = g.ts AS first, t.cause
    FROM (SELECT rank, ts, cause FROM _timeline JOIN _mask_meanings USING (mask) WHERE device IS NULL) AS t
    ASOF JOIN _gaps AS g ON g.rank = t.rank AND t.ts >= g.ts WHERE t.ts < g."end"
),
-- A part begins at the start of its gap, or when the cause changes.
starts AS (
    SELECT * FROM stretches
    QUALIFY first OR cause IS DISTINCT FROM lag(cause) OVER (PARTITION BY rank ORDER BY ts)
)
SELECT gap, rank, cause, ts, least(lead(ts) OVER in_order, gap_end) AS "end",
       coalesce(lead(ts) OVER in_order < gap_end, false) AS resumes
FROM starts WINDOW in_order AS (PARTITION BY rank ORDER BY ts)
