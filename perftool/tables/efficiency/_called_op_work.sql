-- Work on a CPU by the framework op that the program called. Work of the backward pass belongs to the called op that it
-- differentiates. Without a backward pass there are no rows, because the ops themselves then show the same.
--
-- needs: device_ops, launches, windows, ops, _differentiated
-- empty without: device_ops, launches, _differentiated
-- column rank: INTEGER, distributed rank
-- column op: VARCHAR, name of the outermost op
-- column share: DOUBLE, share of the rank's device time in the window
-- column backward: BOOLEAN, whether the share includes work of the backward pass
WITH work AS (
    SELECT d.id, d.rank, d.dur, l.track, l.ts FROM device_ops AS d JOIN launches AS l ON l.id = d.launch
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end" WHERE d.valid AND l.own_work
),
forwards AS (
    SELECT w.id, f.op_track AS track, f.op_ts AS ts
    FROM work AS w ASOF JOIN _differentiated AS f ON f.track = w.track AND w.ts >= f.ts WHERE w.ts < f."end" AND f.op IS NOT NULL
),
places AS (
    SELECT id, track, ts, true AS backward FROM forwards
    UNION ALL SELECT id, track, ts, false FROM work ANTI JOIN forwards USING (id)
),
outer_ops AS (
    SELECT track, name, ts, "end" FROM ops WHERE outermost AND NOT starts_with(name, 'autograd::engine')
),
inside AS (
    SELECT p.id, p.backward, o.name FROM places AS p ASOF JOIN outer_ops AS o ON o.track = p.track AND p.ts >= o.ts WHERE p.ts < o."end"
)
SELECT w.rank, i.name AS op, sum(w.dur) / a.ns AS share, bool_or(i.backward) AS backward
FROM inside AS i JOIN work AS w USING (id) JOIN (SELECT rank, sum(dur) AS ns FROM work GROUP BY rank) AS a USING (rank)
WHERE EXISTS (FROM _differentiated)
GROUP BY w.rank, i.name, a.ns
