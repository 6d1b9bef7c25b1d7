-- What the threads that feed the device do, in classes of falling priority. When several apply at once the
-- first one explains an idle device.
--
-- needs: slices, _names, _feeding_tracks, compilations, syncs
-- column rank: INTEGER, distributed rank
-- column class: INTEGER, 0 compile, 1 fallback, 2 data loading, 3 collective, 4 synchronisation, 5 copy, 6 graph build, 7 optimizer, 8 launch call, 9 framework op, 10 Python
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
SELECT s.rank, n.activity AS class, s.ts, s."end"
FROM slices AS s
JOIN _names AS n ON n.name = s.name AND n.cat = s.cat
JOIN _feeding_tracks AS f ON f.track = s.track
-- Calls inside calls, ops inside ops and Python inside Python add nothing.
WHERE n.activity < 8 OR s.outermost
UNION ALL
SELECT rank, 0, ts, "end" FROM compilations WHERE ts IS NOT NULL
UNION ALL
SELECT s.rank, 4, s.ts, s."end" FROM syncs AS s JOIN _feeding_tracks AS f ON f.track = s.track
