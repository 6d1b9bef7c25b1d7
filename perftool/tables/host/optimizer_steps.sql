-- One row per call of an optimizer's step.
--
-- needs: slices, roles, launches
-- empty without: roles.role=optimizer_step
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column class: VARCHAR, class of the optimizer, for example AdamW
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length on the host in ns
-- column end: BIGINT, end in ns
-- column ops: BIGINT, framework ops directly or indirectly inside
-- column launched: BIGINT, units of device work submitted inside
WITH steps AS (
    SELECT id, rank, track, track AS lane, regexp_extract(name, '#(.+?)(\.step)?$', 1) AS class, ts, "end"
    FROM slices WHERE side = 'host' AND name IN (SELECT name FROM roles WHERE role = 'optimizer_step')
),
ops AS (
    SELECT id, track AS lane, ts, "end" FROM slices WHERE cat = 'cpu_op' AND track IN (SELECT track FROM steps)
),
calls AS (
    SELECT id, track AS lane, ts, "end", device_ops FROM launches WHERE track IN (SELECT track FROM steps)
),
inside AS (SELECT outside AS id, count(*) AS ops FROM interval_pairs(ops, steps) GROUP BY outside),
submitted AS (
    SELECT p.outside AS id, sum(c.device_ops) AS launched
    FROM interval_pairs(calls, steps) AS p JOIN calls AS c ON c.id = p.inside
    GROUP BY p.outside
)
SELECT s.id, s.rank, s.track, s.class, s.ts, s."end" - s.ts AS dur, s."end",
       coalesce(i.ops, 0) AS ops, coalesce(l.launched, 0)::BIGINT AS launched
FROM steps AS s LEFT JOIN inside AS i USING (id) LEFT JOIN submitted AS l ON l.id = s.id
