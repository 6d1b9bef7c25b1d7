-- One row per time the host waits for the device.
--
-- needs: slices, ops
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column kind: VARCHAR, scalar_read (a tensor value fetched to Python), copy (a blocking copy) or explicit
-- column name: VARCHAR, the call or op
-- column op: VARCHAR, outermost op responsible, for example aten::item
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
-- column location: VARCHAR, Python frame of the user's code, when stacks were recorded
WITH reads AS (
    SELECT id, rank, track, 'scalar_read' AS kind, name, name AS op, ts, "end", call_stack
    FROM ops WHERE name IN ('aten::item', 'aten::is_nonzero', 'aten::equal')
    UNION ALL
    SELECT o.id, o.rank, o.track, 'scalar_read', o.name, o.name, o.ts, o."end", o.call_stack
    FROM ops AS o LEFT JOIN ops AS p ON p.id = o.parent
    WHERE o.name = 'aten::_local_scalar_dense' AND p.name IS DISTINCT FROM 'aten::item'
        AND p.name IS DISTINCT FROM 'aten::is_nonzero'
),
-- aten::is_nonzero calls aten::item: count the outer one.
outermost AS (
    SELECT r.* FROM reads AS r LEFT JOIN slices AS s ON s.id = r.id LEFT JOIN slices AS p ON p.id = s.parent
    WHERE p.name IS NULL OR p.name NOT IN ('aten::is_nonzero', 'aten::item')
),
waits AS (
    SELECT s.id, s.rank, s.track, s.name, s.ts, s."end", s.parent,
           regexp_matches(s.name, 'memcpy', 'i') AS copying
    FROM slices AS s
    WHERE s.side = 'host' AND s.cat = 'runtime'
        AND (regexp_matches(s.name, '(Stream|Device|Event|Ctx|Context)Synchronize')
             OR s.name IN ('cudaMemcpy', 'hipMemcpy', 'hipMemcpyWithStream', 'urEventWait', 'urQueueFinish'))
),
others AS (
    SELECT w.id, w.rank, w.track, w.name, w.ts, w."end", p.name AS op, p.cat AS parent_cat, w.copying
    FROM waits AS w
    LEFT JOIN slices AS p ON p.id = w.parent
    -- Waits inside a scalar read are that read.
    WHERE NOT EXISTS (SELECT 1 FROM outermost AS r WHERE r.track = w.track AND r.ts <= w.ts AND r."end" >= w."end")
)
SELECT id, rank, track, kind, name, op, ts, "end" - ts AS dur, "end", call_stack AS location FROM outermost
UNION ALL
SELECT id, rank, track,
       CASE WHEN copying OR regexp_matches(coalesce(op, ''), '^aten::(copy_|_to_copy|to|cpu)$') THEN 'copy'
            ELSE 'explicit' END,
       name, CASE WHEN parent_cat = 'cpu_op' THEN op END, ts, "end" - ts, "end", NULL
FROM others
