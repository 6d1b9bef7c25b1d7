-- Host threads that feed the device: they make a share of the launches. Loader workers, pinning threads and
-- watchdogs launch little or nothing. Without launches it is the thread of the profiler steps, or the one that
-- runs most of the ops.
--
-- needs: launches, slices, tracks
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
WITH counted AS (
    SELECT rank, track, sum(device_ops) AS launched, sum(sum(device_ops)) OVER (PARTITION BY rank) AS total
    FROM launches GROUP BY rank, track
),
stepping AS (
    SELECT DISTINCT rank, track FROM slices WHERE side = 'host' AND starts_with(name, 'ProfilerStep#')
),
busiest AS (
    SELECT rank, first(track ORDER BY ops DESC, track) AS track
    FROM (SELECT rank, track, count(*) AS ops FROM slices WHERE side = 'host' AND cat = 'cpu_op' GROUP BY ALL)
    GROUP BY rank
),
-- Gaudi's bridge and Synapse show their part of the same threads, and the launch thread, on lanes of their own.
gaudi AS (
    SELECT rank, id AS track FROM tracks
    WHERE side = 'host' AND (process IN ('Bridge Logs', 'Synapse Logger') OR starts_with(thread, 'Synapse/'))
)
SELECT rank, track FROM counted WHERE launched >= 0.05 * total
UNION SELECT rank, track FROM stepping
UNION SELECT rank, track FROM gaudi
UNION SELECT rank, track FROM busiest WHERE rank NOT IN (SELECT rank FROM counted UNION SELECT rank FROM stepping)
