-- Device work by the program's annotations (record_function). Work belongs to the outermost annotation around its
-- launch, but an annotation around nearly the whole window gives way to those inside it if these cover most of the
-- window.
--
-- needs: device_ops, launches, windows, slices, _name_roles
-- empty without: device_ops, _name_roles.cat=user_annotation
-- column rank: INTEGER, distributed rank
-- column annotation: VARCHAR, name of the annotation
-- column share: DOUBLE, share of the rank's work (the sum of the lengths inside the window)
WITH marked AS (
    SELECT s.rank, s.track, s.id, s.name, s.ts, s."end",
           max(s."end") OVER (PARTITION BY s.track ORDER BY s.ts, s."end" DESC, s.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM slices AS s JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.cat = 'user_annotation' AND s.side = 'host' AND list_has_all(['backward'], n.roles) AND NOT is_step(s.name)
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
    SELECT d.rank, d.dur, l.track, l.ts FROM device_ops AS d JOIN launches AS l ON l.id = d.launch
    JOIN windows AS w ON w.rank = d.rank AND d.ts >= w.ts AND d.ts < w."end"
    WHERE d.valid AND d.rank IN (SELECT rank FROM outermost)
),
inside AS (
    SELECT w.rank, m.name AS annotation, w.dur FROM work AS w ASOF JOIN outermost AS m ON m.track = w.track AND w.ts >= m.ts WHERE w.ts < m."end"
)
SELECT i.rank, i.annotation, sum(i.dur) / a.ns AS share
FROM inside AS i JOIN (SELECT rank, sum(dur) AS ns FROM work GROUP BY rank) AS a USING (rank)
GROUP BY i.rank, i.annotation, a.ns
