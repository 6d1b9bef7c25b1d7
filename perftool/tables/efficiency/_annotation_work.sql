-- Device work per annotation of the program (record_function). Work belongs to the outermost annotation around its
-- launch. An annotation around nearly the whole window is ignored if the annotations inside it cover most of the
-- window. Backward work outside all annotations belongs to the annotation around the op that it differentiates.
--
-- needs: device_ops, launches, windows, slices, _name_roles, _differentiated
-- empty without: device_ops, _name_roles.annotates
-- column rank: INTEGER, distributed rank
-- column annotation: VARCHAR, name of the annotation
-- column share: DOUBLE, share of the rank's device time in the window
-- column backward: BOOLEAN, whether the share includes work of the backward pass outside all annotations
WITH marked AS (
    SELECT s.rank, s.track, s.id, s.name, s.ts, s."end",
           max(s."end") OVER (PARTITION BY s.track ORDER BY s.ts, s."end" DESC, s.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM slices AS s JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.cat = 'user_annotation' AND s.side = 'host' AND n.annotates
),
whole AS (
    SELECT m.rank, m.name FROM marked AS m JOIN windows AS w USING (rank) WHERE m.before IS NULL OR m.ts >= m.before
    GROUP BY m.rank, m.name, w.dur HAVING sum(m."end" - m.ts) > 0.9 * w.dur
),
inner_marks AS (
    SELECT m.rank, m.track, m.id, m.name, m.ts, m."end",
           max(m."end") OVER (PARTITION BY m.track ORDER BY m.ts, m."end" DESC, m.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM marked AS m ANTI JOIN whole AS w ON w.rank = m.rank AND w.name = m.name
),
parts AS (FROM inner_marks WHERE before IS NULL OR ts >= before),
divided AS (
    SELECT p.rank FROM parts AS p JOIN windows AS w USING (rank) GROUP BY p.rank, w.dur HAVING sum(p."end" - p.ts) > 0.5 * w.dur
),
outermost AS (
    FROM parts WHERE rank IN (FROM divided)
    UNION ALL FROM marked WHERE (before IS NULL OR ts >= before) AND rank NOT IN (FROM divided)
),
work AS (
    SELECT d.id, d.rank, d.dur, l.track, l.ts FROM device_ops AS d JOIN launches AS l ON l.id = d.launch
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    WHERE d.valid AND d.rank IN (SELECT rank FROM outermost)
),
forwards AS (
    SELECT w.id, f.op_track AS track, f.op_ts AS ts
    FROM work AS w ASOF JOIN _differentiated AS f ON f.track = w.track AND w.ts >= f.ts WHERE w.ts < f."end" AND f.op IS NOT NULL
),
places AS (
    SELECT id, track, ts, false AS backward FROM work UNION ALL SELECT id, track, ts, true FROM forwards
),
inside AS (
    SELECT p.id, min(p.backward) AS backward, arg_min(m.name, (p.backward, m.name)) AS annotation
    FROM places AS p ASOF JOIN outermost AS m ON m.track = p.track AND p.ts >= m.ts WHERE p.ts < m."end" GROUP BY p.id
)
SELECT w.rank, i.annotation, sum(w.dur) / a.ns AS share, bool_or(i.backward) AS backward
FROM inside AS i JOIN work AS w USING (id) JOIN (SELECT rank, sum(dur) AS ns FROM work GROUP BY rank) AS a USING (rank)
GROUP BY w.rank, i.annotation, a.ns
