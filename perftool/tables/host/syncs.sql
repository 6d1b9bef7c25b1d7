-- One row per time the host waits for the device. Reading a value that is in host memory already is no wait and
-- has no row.
--
-- needs: slices, tracks, ops, _runtime, _names, _device_work, _work_names
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column kind: VARCHAR, scalar_read (a tensor value fetched to Python), copy (a blocking copy) or explicit
-- column name: VARCHAR, the call or op
-- column op: VARCHAR, outermost op responsible, for example aten::item
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
-- column location: VARCHAR, Python call stack, when recorded
WITH calls AS (
    -- Gaudi shows the runtime calls of a thread on lanes of other processes, so threads are told by tid.
    SELECT r.id, r.rank, r.track, t.tid, r.name, r.ts, r."end", r.parent, n.waits, n.copies
    FROM _runtime AS r JOIN _names AS n ON n.name = r.name AND n.cat = 'runtime'
    JOIN tracks AS t ON t.id = r.track
    WHERE n.waits OR n.copies
),
-- The outermost of the ops that fetch a value: aten::equal and aten::is_nonzero call aten::item, and that the dense read.
candidates AS (
    SELECT o.id, o.rank, o.track, t.tid, o.name, o.ts, o."end", o.call_stack
    FROM ops AS o JOIN tracks AS t ON t.id = o.track LEFT JOIN slices AS p ON p.id = o.parent
    WHERE o.name IN ('aten::item', 'aten::is_nonzero', 'aten::equal', 'aten::_local_scalar_dense')
        AND coalesce(p.name, '') NOT IN ('aten::item', 'aten::is_nonzero', 'aten::equal')
),
-- Only a read during which the host calls for data, or data comes from the device, waits for the device.
fetches AS (
    SELECT rank, ts FROM calls
    UNION ALL SELECT w.rank, w."end" FROM _device_work AS w LEFT JOIN _work_names AS n ON n.name = w.name
              WHERE w.set_aside IS NULL AND (n.to_host OR w.direction = 'DEVICE_TO_HOST')
),
reads AS (
    SELECT c.* FROM candidates AS c
    ASOF JOIN fetches AS f ON f.rank = c.rank AND f.ts <= c."end"
    WHERE f.ts >= c.ts
),
-- Where a wait has no parent, on the lanes of Gaudi's runtime, a copy on its thread may still be around it.
copiers AS (
    SELECT o.rank, t.tid, o.name, o.ts, o."end" FROM ops AS o JOIN tracks AS t ON t.id = o.track
    WHERE o.name IN ('aten::copy_', 'aten::_to_copy', 'aten::to', 'aten::cpu')
        AND o.rank IN (SELECT rank FROM calls WHERE waits AND parent IS NULL)
),
others AS (
    SELECT w.*, CASE WHEN w.parent IS NULL AND c."end" >= w."end" THEN c.name ELSE p.name END AS op,
           CASE WHEN w.parent IS NULL AND c."end" >= w."end" THEN 'cpu_op' ELSE p.cat END AS parent_cat
    FROM calls AS w
    LEFT JOIN slices AS p ON p.id = w.parent
    ASOF LEFT JOIN copiers AS c ON c.rank = w.rank AND c.tid = w.tid AND w.ts >= c.ts
    -- Waits inside a scalar read are that read.
    ASOF LEFT JOIN reads AS r ON r.rank = w.rank AND r.tid = w.tid AND w.ts >= r.ts
    WHERE w.waits AND (r.id IS NULL OR r."end" < w."end")
)
SELECT id, rank, track, 'scalar_read' AS kind, name, name AS op, ts, "end" - ts AS dur, "end", call_stack AS location
FROM reads
UNION ALL
SELECT id, rank, track,
       CASE WHEN copies OR regexp_matches(coalesce(op, ''), '^aten::(copy_|_to_copy|to|cpu)$') THEN 'copy'
            ELSE 'explicit' END,
       name, CASE WHEN parent_cat = 'cpu_op' THEN op END, ts, "end" - ts, "end", NULL
FROM others
