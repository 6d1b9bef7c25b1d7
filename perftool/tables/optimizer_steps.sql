-- One row per call of an optimizer's step.
--
-- needs: slices, launches
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
    SELECT id, rank, track, regexp_extract(name, '#(.+?)(\.step)?$', 1) AS class, ts, "end"
    FROM slices WHERE side = 'host' AND starts_with(name, 'Optimizer.step#')
),
inside AS (
    SELECT s.id, count(*) AS ops FROM steps AS s
    JOIN slices AS o ON o.track = s.track AND o.ts >= s.ts AND o."end" <= s."end" AND o.cat = 'cpu_op'
    GROUP BY s.id
),
submitted AS (
    SELECT s.id, sum(l.device_ops) AS launched FROM steps AS s
    JOIN launches AS l ON l.track = s.track AND l.ts >= s.ts AND l."end" <= s."end"
    GROUP BY s.id
)
SELECT s.id, s.rank, s.track, s.class, s.ts, s."end" - s.ts AS dur, s."end",
       coalesce(i.ops, 0) AS ops, coalesce(l.launched, 0)::BIGINT AS launched
FROM steps AS s LEFT JOIN inside AS i USING (id) LEFT JOIN submitted AS l ON l.id = s.id
