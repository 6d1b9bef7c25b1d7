-- Gaudi: waits and transfers on the lanes of Synapse's methods. These lanes have no thread id, and a lane of Synapse's
-- API may show the same call.
--
-- needs: _runtime, tracks, roles, _vocabulary
-- empty without: _runtime
-- column id: BIGINT, host call (slices.id)
-- column again: BOOLEAN, whether another lane shows the same call
WITH lanes AS (
    SELECT DISTINCT t.id FROM tracks AS t
    JOIN _vocabulary AS v ON v.subject = 'thread' AND v.role = 'methods' AND lower(t.thread) GLOB v.pattern
),
calls AS (
    SELECT r.id, r.rank || s.role AS lane, r.ts, r."end", r.track IN (SELECT id FROM lanes) AS method
    FROM _runtime AS r JOIN roles AS s ON s.cat = 'runtime' AND s.role IN ('wait', 'transfer') AND s.name = r.name
    WHERE r.rank IN (SELECT rank FROM tracks WHERE id IN (SELECT id FROM lanes))
),
-- The slack allows for the different clocks of the lanes. reach is the latest end of all calls up to this one.
around AS (
    SELECT lane, ts - clock_slack_ns() AS ts, max("end" + clock_slack_ns()) OVER (PARTITION BY lane ORDER BY ts) AS reach
    FROM calls WHERE NOT method
)
SELECT m.id, coalesce(m."end" <= a.reach, false) AS again
FROM calls AS m ASOF LEFT JOIN around AS a ON a.lane = m.lane AND m.ts >= a.ts WHERE m.method
