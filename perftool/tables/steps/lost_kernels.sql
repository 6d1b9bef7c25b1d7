-- The kernels that a rank launched in its steps but that its recording lacks. The device seems idle while they run.
--
-- A wrapper and its driver call may share one id, so a launch counts as lost only if no device work has that id.
-- The ratio of the median step is used, because the end of a recording may truncate the work of its last step.
--
-- needs: _step_bounds, roles, _runtime, _device_work, _stream_captures
-- empty without: _device_work
-- column rank: INTEGER, distributed rank with device work
-- column launches: BIGINT, number of kernel launches in complete steps, apart from graph capture
-- column lost: BIGINT, number of these launches without device work
-- column ratio: DOUBLE, share of the kernel launches without device work, in the median complete step that launches kernels
-- column many: BOOLEAN, whether this share is so large that the device's state is unknown
WITH captured AS (SELECT *, 0 AS class FROM _stream_captures),
captures AS (FROM interval_union(captured)),
launching AS (
    SELECT rank, ts, correlation FROM _runtime
    WHERE correlation IS NOT NULL AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'kernel_launch')
),
calls AS (
    FROM launching WHERE rank NOT IN (SELECT rank FROM captures)
    UNION ALL
    SELECT c.* FROM (FROM launching WHERE rank IN (SELECT rank FROM captures)) AS c
    ASOF LEFT JOIN captures AS g ON g.rank = c.rank AND c.ts >= g.ts WHERE g.ts IS NULL OR c.ts >= g."end"
),
answered AS (SELECT DISTINCT rank, correlation, true AS found FROM _device_work WHERE correlation IS NOT NULL),
counted AS (
    SELECT s.rank, s.host_ts, count(*) AS calls, count(*) FILTER (a.found IS NULL) AS lost
    FROM calls AS c
    ASOF JOIN (SELECT rank, host_ts, host_end FROM _step_bounds WHERE NOT partial) AS s ON s.rank = c.rank AND c.ts >= s.host_ts
    LEFT JOIN answered AS a ON a.rank = c.rank AND a.correlation = c.correlation
    WHERE c.ts < s.host_end
    GROUP BY s.rank, s.host_ts
)
-- In all healthy recordings that we have, each launch of the median step has a kernel. The limit for comparing runs
-- is the same (MOST_LOST_KERNELS in perftool/engine/report/complete_steps.py).
SELECT rank, sum(calls)::BIGINT AS launches, sum(lost)::BIGINT AS lost, median(counted.lost / calls) AS ratio, ratio > 0.05 AS many
FROM counted
WHERE rank IN (SELECT rank FROM answered) GROUP BY rank
