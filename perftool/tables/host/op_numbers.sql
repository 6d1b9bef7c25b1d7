-- Gaps in the numbers of a rank's framework ops. PyTorch numbers every op and annotation that the profiler sees, so the
-- numbers in a complete recording are consecutive.
--
-- Gaps do not prove that events are missing, because other code may use up numbers. Most events count as missing only
-- with further evidence: device work without launches, flows without an end, or threads that are silent where numbers
-- are missing, for about as long as the missing ops would take. If Gaudi's own launch numbers show that more than half
-- of the launches were recorded, most of the recording is there.
--
-- needs: ops, _runtime, _device_work, _links, _recipe_calls
-- empty without: ops
-- column rank: INTEGER, distributed rank
-- column numbered: BIGINT, number of ops and calls that have their own number
-- column missing: BIGINT, how many numbers between the first and the last are missing
-- column scattered: BOOLEAN, whether most numbers are missing
-- column thinned: BOOLEAN, whether most of the recording is missing, according to the numbers and further evidence
WITH known AS (
    SELECT rank, external_id AS number FROM ops WHERE external_id > 0
    -- Newer releases of the bridge also number their calls. A call with a correlation has the number of its enclosing
    -- op.
    UNION SELECT rank, external_id FROM _runtime WHERE external_id > 0 AND correlation IS NULL
),
numbers AS (SELECT rank, number, number - lag(number) OVER (PARTITION BY rank ORDER BY number) AS distance FROM known),
counted AS (
    SELECT rank, count(*) AS numbered, max(number) - min(number) + 1 - count(*) AS missing,
           -- A few ops, or ops in short stretches far apart, prove nothing.
           count(*) >= 100 AND median(distance) >= 2 AND missing > count(*) AS scattered
    FROM numbers GROUP BY rank
),
suspects AS (SELECT rank FROM counted WHERE scattered),
linked AS (
    SELECT w.rank, count(l.work) AS linked, count(*) AS work
    FROM (SELECT * FROM _device_work SEMI JOIN suspects USING (rank)) AS w
    LEFT JOIN (SELECT DISTINCT work FROM _links) AS l ON l.work = w.id
    WHERE w.set_aside IS NULL GROUP BY w.rank
),
flows AS (
    SELECT rank, count(*) AS begun, count(*) FILTER (ends = 0) AS endless
    FROM (SELECT rank, id, count(*) FILTER (ph = 'f') AS ends, count(*) FILTER (ph = 's') AS starts
          FROM raw WHERE ph IN ('s', 'f') AND rank IN (SELECT rank FROM suspects) GROUP BY rank, id)
    WHERE starts > 0 GROUP BY rank
),
neighbours AS (
    SELECT rank, track, external_id AS number, ts, "end", lead(external_id) OVER w AS next, lead(ts) OVER w AS next_ts,
           lead(track) OVER w AS next_track
    FROM (SELECT * FROM ops SEMI JOIN suspects USING (rank)) WHERE external_id > 0
    WINDOW w AS (PARTITION BY rank ORDER BY external_id, ts)
),
silent AS (
    SELECT n.rank, sum(greatest(next_ts - "end", 0)) / sum(next - number - 1) AS ns_per_number, min(l.ns) AS op_ns
    FROM neighbours AS n JOIN (SELECT rank, median("end" - ts) AS ns FROM neighbours GROUP BY rank) AS l USING (rank)
    WHERE next > number + 1 AND next_track = track GROUP BY n.rank
),
-- Ranks whose recording contains more than half of the launches between the first and the last.
whole AS (
    SELECT rank FROM _recipe_calls GROUP BY rank HAVING count(*) >= 10 AND 2 * count(DISTINCT seq) > max(seq) - min(seq)
)
SELECT c.rank, c.numbered, c.missing, c.scattered,
       c.scattered AND c.rank NOT IN (SELECT rank FROM whole)
       AND (coalesce(l.linked > 0 AND 2 * l.linked < l.work, false) OR coalesce(2 * f.endless > f.begun, false)
            OR coalesce(s.ns_per_number BETWEEN 0.1 * s.op_ns AND 10 * s.op_ns, false)) AS thinned
FROM counted AS c LEFT JOIN linked AS l USING (rank) LEFT JOIN flows AS f USING (rank) LEFT JOIN silent AS s USING (rank)
