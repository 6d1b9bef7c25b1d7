-- One row per wait of the host for the device, even if several lanes show it. Reading a value in host memory is not a
-- wait and has no row.
--
-- needs: slices, tracks, ops, roles, _runtime, _name_roles, _device_work, _method_calls
-- empty without: roles.role=scalar_read or _name_roles.waits
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, host track
-- column kind: VARCHAR, scalar_read (a tensor value fetched to Python), copy (a blocking copy) or explicit
-- column name: VARCHAR, name of the call or op
-- column op: VARCHAR, for a scalar read, the outermost op that reads the value, for example aten::item; else the op directly around the call
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column location: VARCHAR, Python call stack, when recorded
WITH calls AS (
    -- Traces of Gaudi show the runtime calls of a thread on lanes of other processes, so threads are identified by tid,
    -- if they have one.
    SELECT r.id, r.rank, r.track, CASE WHEN m.id IS NULL THEN t.tid ELSE '' END AS tid, r.name, r.ts, r."end", r.parent,
           n.waits, n.copies
    FROM _runtime AS r JOIN _name_roles AS n ON n.name = r.name AND n.cat = 'runtime'
    JOIN tracks AS t ON t.id = r.track
    LEFT JOIN _method_calls AS m ON m.id = r.id
    WHERE (n.waits OR n.copies) AND NOT coalesce(m.again, false)
),
readers AS (SELECT name FROM roles WHERE cat = 'cpu_op' AND role = 'scalar_read'),
-- Keep only the outermost op that fetches a value: aten::equal and aten::is_nonzero call aten::item, which calls
-- aten::_local_scalar_dense.
candidates AS (
    SELECT o.id, o.rank, o.track, o.name, o.ts, o."end", o.call_stack
    FROM ops AS o LEFT JOIN slices AS p ON p.id = o.parent
    WHERE o.name IN (SELECT name FROM readers) AND coalesce(p.name, '') NOT IN (SELECT name FROM readers)
),
-- A read waits for the device only if a runtime call that waits or copies begins during the read, or a copy from the
-- device ends during it.
fetches AS (
    SELECT rank, ts FROM calls
    UNION ALL SELECT rank, "end" FROM _device_work WHERE set_aside IS NULL AND direction = 'device_to_host'
),
reads AS (
    SELECT c.* FROM candidates AS c
    ASOF JOIN fetches AS f ON f.rank = c.rank AND f.ts <= c."end"
    WHERE f.ts >= c.ts
),
copy_ops AS (SELECT name FROM roles WHERE cat = 'cpu_op' AND role = 'copy'),
-- A wait on a lane without a thread id may belong to any thread.
threads AS (
    SELECT id AS track, tid FROM tracks WHERE side = 'host'
    UNION ALL SELECT id, '' FROM tracks WHERE side = 'host' AND rank IN (SELECT rank FROM calls WHERE tid = '')
),
-- A wait without a parent, on the lanes of Gaudi's runtime, may still be inside a copy on its thread.
copiers AS (
    SELECT o.rank, t.tid, o.name, o.ts, o."end" FROM ops AS o JOIN threads AS t ON t.track = o.track
    WHERE o.name IN (SELECT name FROM copy_ops)
        AND o.rank IN (SELECT rank FROM calls WHERE waits AND parent IS NULL)
),
reading AS (SELECT r.id, r.rank, t.tid, r.ts, r."end" FROM reads AS r JOIN threads AS t ON t.track = r.track),
others AS (
    SELECT w.*, CASE WHEN w.parent IS NULL AND c."end" >= w."end" THEN c.name ELSE p.name END AS op,
           CASE WHEN w.parent IS NULL AND c."end" >= w."end" THEN 'cpu_op' ELSE p.cat END AS parent_cat
    FROM calls AS w
    LEFT JOIN slices AS p ON p.id = w.parent
    ASOF LEFT JOIN copiers AS c ON c.rank = w.rank AND c.tid = w.tid AND w.ts >= c.ts
    -- Waits inside a scalar read are part of the read.
    ASOF LEFT JOIN reading AS r ON r.rank = w.rank AND r.tid = w.tid AND w.ts >= r.ts
    -- If waits are nested, only the outermost counts.
    WHERE w.waits AND (r.id IS NULL OR r."end" < w."end") AND coalesce(w.parent, -1) NOT IN (SELECT id FROM calls WHERE waits)
)
SELECT id, rank, track, 'scalar_read' AS kind, name, name AS op, ts, "end" - ts AS dur, "end", call_stack AS location
FROM reads
UNION ALL
SELECT id, rank, track,
       CASE WHEN copies OR coalesce(op, '') IN (SELECT name FROM copy_ops) THEN 'copy'
            ELSE 'explicit' END,
       name, CASE WHEN parent_cat = 'cpu_op' THEN op END, ts, "end" - ts, "end", NULL
FROM others
