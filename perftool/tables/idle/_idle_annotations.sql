-- For each cause of idle time, the program's annotation that contains more than half of that time, or the shortest if
-- there are several. Annotations of one library, such as FSDP::all_gather and FSDP::post_backward, count together as
-- FSDP::….
--
-- needs: gap_causes, slices, _name_roles
-- empty without: gap_causes, _name_roles.annotates
-- column rank: INTEGER, distributed rank
-- column cause: VARCHAR, gap_causes.cause
-- column annotation: VARCHAR, name of the annotation
-- column ns: BIGINT, idle time with this cause inside the annotation
WITH marked AS (
    SELECT s.rank, regexp_replace(s.name, '^(\w+::).*$', '\1…') AS name, s.ts, s."end" FROM slices AS s JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    WHERE s.cat = 'user_annotation' AND s.side = 'host' AND n.annotates AND len(n.roles) = 0
),
-- The mask has a bit for each cause and for 30 annotations, so only the 30 annotations with the most time count.
longest AS (
    SELECT rank, name, (row_number() OVER (PARTITION BY rank ORDER BY sum("end" - ts) DESC, name) - 1)::INTEGER AS class
    FROM marked GROUP BY rank, name QUALIFY class < 30
),
causes AS (
    SELECT rank, cause, (29 + row_number() OVER (PARTITION BY rank ORDER BY sum(dur) DESC, cause))::INTEGER AS class
    FROM gap_causes WHERE rank IN (SELECT rank FROM longest) GROUP BY rank, cause
),
every AS (
    SELECT m.rank, l.class, m.ts, m."end" FROM marked AS m JOIN longest AS l USING (rank, name)
    UNION ALL
    SELECT g.rank, c.class, g.ts, g."end" FROM gap_causes AS g JOIN causes AS c USING (rank, cause)
),
united AS (SELECT * FROM interval_union(every)),
swept AS (SELECT rank, mask, sum("end" - ts) AS ns FROM interval_sweep(united) GROUP BY rank, mask),
whole AS (SELECT s.rank, l.name, sum(s.ns) AS ns FROM swept AS s JOIN longest AS l ON l.rank = s.rank AND s.mask & (1::BIGINT << l.class) > 0 GROUP BY s.rank, l.name),
inside AS (
    SELECT s.rank, c.cause, l.name, sum(s.ns) AS ns
    FROM swept AS s JOIN causes AS c ON c.rank = s.rank AND s.mask & (1::BIGINT << c.class) > 0
    JOIN longest AS l ON l.rank = s.rank AND s.mask & (1::BIGINT << l.class) > 0
    GROUP BY s.rank, c.cause, l.name
)
SELECT i.rank, i.cause, i.name AS annotation, i.ns::BIGINT AS ns
FROM inside AS i JOIN whole AS w ON w.rank = i.rank AND w.name = i.name
JOIN (SELECT rank, cause, sum(dur) AS ns FROM gap_causes GROUP BY rank, cause) AS g ON g.rank = i.rank AND g.cause = i.cause
WHERE i.ns > 0.5 * g.ns
QUALIFY row_number() OVER (PARTITION BY i.rank, i.cause ORDER BY w.ns, i.name) = 1
ORDER BY i.rank, i.cause
