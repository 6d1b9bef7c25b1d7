-- Gaudi: the hardware monitors that ended each engine's events, and whether these events are work. Events of monitors
-- that are known to mark points in time do not count as device work; events of unknown monitors do.
--
-- needs: slices, tracks, _vocabulary
-- empty without: tracks.engine
-- column rank: INTEGER, distributed rank
-- column engine: VARCHAR, engine group of the lane
-- column monitor: VARCHAR, name of the monitor in the trace (HW event name)
-- column role: VARCHAR, work or point, from the vendor file; NULL for an unknown name
-- column events: BIGINT, number of events of non-zero length that the monitor ended
-- column ns: BIGINT, total duration of these events over all lanes, including overlaps
WITH ended AS (
    SELECT s.rank, t.engine, r.args ->> 'HW event name' AS monitor, s.dur
    FROM slices AS s JOIN tracks AS t ON t.id = s.track JOIN raw AS r ON r.rowid = s.id
    WHERE s.side = 'device' AND t.engine IS NOT NULL AND s.dur > 0
),
counted AS (
    SELECT rank, engine, monitor, count(*) AS events, sum(dur)::BIGINT AS ns
    FROM ended WHERE monitor <> '' GROUP BY ALL
),
known AS (
    SELECT c.monitor, min(v.role) AS role
    FROM (SELECT DISTINCT monitor FROM counted) AS c
    JOIN _vocabulary AS v ON v.subject = 'monitor' AND lower(c.monitor) GLOB v.pattern
    GROUP BY c.monitor
)
SELECT c.rank, c.engine, c.monitor, k.role, c.events, c.ns
FROM counted AS c LEFT JOIN known AS k USING (monitor) ORDER BY c.rank, c.engine, c.monitor
