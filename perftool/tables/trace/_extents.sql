-- The start and end of each recording, according to its host events. A recording whose host events all have zero length
-- has no row.
--
-- needs: slices
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column host_ts: BIGINT, start of the first host slice in ns
-- column host_end: BIGINT, end of the last host slice in ns
-- column recorded_until: BIGINT, end of the recording according to the profiler, NULL if the profiler did not record it
WITH host AS (
    SELECT rank, min(ts) AS host_ts, max("end") AS host_end
    FROM slices WHERE side = 'host' AND cat NOT IN ('trace', 'overhead') GROUP BY rank HAVING max(dur) > 0
),
noted AS (
    SELECT rank, max(ts) AS recorded_until FROM raw WHERE name = 'Record Window End' AND ph IN ('i', 'I') GROUP BY rank
)
SELECT rank, host_ts, host_end,
       CASE WHEN recorded_until IS NOT NULL THEN greatest(recorded_until, host_end) END AS recorded_until
FROM host LEFT JOIN noted USING (rank)
