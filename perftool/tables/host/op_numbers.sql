-- How the framework ops of a rank are numbered. PyTorch counts every op and annotation that it shows to the profiler, so
-- neighbours in a whole recording have neighbouring numbers; where most have none, events were sampled or dropped.
--
-- needs: ops
-- empty without: ops
-- column rank: INTEGER, distributed rank
-- column numbered: BIGINT, ops with a number
-- column missing: BIGINT, numbers between the first and the last that no op has
-- column thinned: BOOLEAN, most of what was recorded is missing
WITH numbers AS (
    SELECT rank, external_id, external_id - lag(external_id) OVER (PARTITION BY rank ORDER BY external_id) AS distance
    FROM (SELECT DISTINCT rank, external_id FROM ops WHERE external_id > 0)
)
SELECT rank, count(*) AS numbered, max(external_id) - min(external_id) + 1 - count(*) AS missing,
       -- A few ops, and those of short stretches far apart, show no habit.
       count(*) >= 100 AND median(distance) >= 2 AND missing > count(*) AS thinned
FROM numbers GROUP BY rank
