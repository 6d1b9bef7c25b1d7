-- Times when a stream captures a graph. Calls during a capture launch nothing.
--
-- A begin is matched with an end of its own thread. If the recording lacks the end, it lacks the end of the capture or
-- lost this event. So such a capture lasts only until the next call that is impossible during a capture: one whose device
-- work was recorded, or a wait for the device.
--
-- needs: slices, roles, launches, _extents
-- empty without: _extents, roles.role=capture_begin
-- column rank: INTEGER, distributed rank
-- column name: VARCHAR, the call that begins the capture
-- column ts: BIGINT, start of the call that begins the capture, in ns
-- column end: BIGINT, end of the call that ends the capture
WITH calls AS (
    SELECT s.id, s.rank, s.track, s.name, s.ts, s."end", r.role = 'capture_begin' AS begins
    FROM slices AS s JOIN roles AS r ON r.name = s.name AND r.cat = s.cat
    WHERE s.cat = 'runtime' AND s.side = 'host' AND r.role IN ('capture_begin', 'capture_end')
),
-- How many captures of the thread are open during the call. A begin and its end have the same number.
nested AS (
    SELECT *, sum(CASE WHEN begins THEN 1 ELSE -1 END) OVER (PARTITION BY track ORDER BY ts, id) + (NOT begins)::INTEGER AS level
    FROM calls
),
matched AS (
    SELECT b.rank, b.name, b.ts, e."end"
    FROM nested AS b ASOF LEFT JOIN (FROM nested WHERE NOT begins) AS e ON e.track = b.track AND e.level = b.level AND b.ts <= e.ts
    WHERE b.begins
),
running AS (
    SELECT rank, ts FROM launches WHERE rank IN (SELECT rank FROM matched WHERE "end" IS NULL)
    UNION ALL
    SELECT s.rank, s.ts FROM slices AS s JOIN roles AS r ON r.name = s.name AND r.cat = s.cat
    WHERE s.cat = 'runtime' AND s.side = 'host' AND r.role = 'wait' AND s.rank IN (SELECT rank FROM matched WHERE "end" IS NULL)
)
SELECT m.rank, m.name, m.ts, coalesce(m."end", least(n.ts, x.host_end)) AS "end"
FROM matched AS m JOIN _extents AS x USING (rank)
ASOF LEFT JOIN running AS n ON n.rank = m.rank AND m.ts < n.ts
