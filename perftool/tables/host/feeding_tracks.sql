-- One row per host thread that feeds the device: a thread that launches at least 5 % of the rank's device work, or that
-- has the profiler steps. Loader workers, pinning threads and watchdogs launch little or nothing. If a rank has neither
-- launches nor profiler steps, the thread with the most ops counts.
--
-- needs: launches, slices, tracks, _vocabulary
-- empty without: tracks
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
WITH counted AS (
    SELECT rank, track, sum(device_ops) AS launched, sum(sum(device_ops)) OVER (PARTITION BY rank) AS total
    FROM launches GROUP BY rank, track
),
stepping AS (
    SELECT DISTINCT rank, track FROM slices WHERE side = 'host' AND is_step(name)
),
busiest AS (
    SELECT rank, first(track ORDER BY ops DESC, track) AS track
    FROM (SELECT rank, track, count(*) AS ops FROM slices WHERE side = 'host' AND cat = 'cpu_op' GROUP BY ALL)
    GROUP BY rank
),
-- On Gaudi, the trace has separate lanes for calls that the feeding threads make into the bridge and Synapse, and for
-- the bridge's launch thread. These lanes also count.
named AS (
    SELECT DISTINCT t.rank, t.id AS track
    FROM tracks AS t JOIN _vocabulary AS v
        ON v.role = 'feeding' AND lower(CASE v.subject WHEN 'process' THEN t.process ELSE t.thread END) GLOB v.pattern
    WHERE t.side = 'host'
)
SELECT rank, track FROM counted WHERE launched >= 0.05 * total
UNION SELECT rank, track FROM stepping
UNION SELECT rank, track FROM named
UNION SELECT rank, track FROM busiest WHERE rank NOT IN (SELECT rank FROM counted UNION SELECT rank FROM stepping)
