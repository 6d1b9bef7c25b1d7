-- One row per unit of work on a device: kernels, copies, fills and collectives. Where the CPU is the device, its work
-- is the ops that compute; id, launch and op are then equal.
--
-- needs: _device_work, _links, launches, slices, ops
-- empty without: _device_work
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, stream or engine lane (tracks.id)
-- column name: VARCHAR, kernel or copy name
-- column kind: VARCHAR, kernel, memcpy, memset, collective, or wait: a kernel that only waits, which does not count as work
-- column engine: VARCHAR, Gaudi engine group (MME, TPC, DMA, PDMA, NIC, ROT, other); elsewhere compute, copy or collective
-- column dtype: VARCHAR, data type when recorded (Gaudi)
-- column stream: VARCHAR, stream id when recorded
-- column device: VARCHAR, device index when recorded
-- column recipe: BIGINT, recipe that the work belongs to (Gaudi)
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, duration in ns
-- column end: BIGINT, end in ns
-- column bytes: BIGINT, bytes moved, for copies
-- column launch: BIGINT, host call that submitted the work (launches.id)
-- column op: BIGINT, framework op that submitted the work (slices.id); Python frames may be between the op and the call
-- column op_name: VARCHAR, name of the op
-- column valid: BOOLEAN, false for impossible events, which are left out of all sums
-- column set_aside: VARCHAR, why the event is impossible; NULL for valid events
WITH linked AS (
    SELECT k.work, l.id, l.ts, l."end", CASE WHEN k.launch = k.work THEN k.work ELSE l.parent END AS parent
    FROM _links AS k JOIN launches AS l ON l.id = k.launch
),
shared AS (SELECT work FROM linked GROUP BY work HAVING count(*) > 1),
launched AS (
    SELECT work AS id, id AS launch, parent FROM linked ANTI JOIN shared USING (work)
    UNION ALL
    -- If several calls (a wrapper and its driver call) submitted the same work, the work belongs to the first call.
    SELECT work, first(id ORDER BY ts, "end" DESC, id), first(parent ORDER BY ts, "end" DESC, id) FILTER (parent IS NOT NULL)
    FROM linked SEMI JOIN shared USING (work) GROUP BY work
),
parents AS (SELECT id, name, cat FROM slices WHERE id IN (SELECT parent FROM launched)),
-- A custom op written in Python has frames between itself and the launches of its kernels; these launches carry the
-- op's External id. The condition on inputs excludes annotations, for example around the whole forward pass.
framed AS (
    SELECT l.launch, c.ts, c.track, try_cast(json_extract_string(r.args, '$."External id"') AS BIGINT) AS external_id
    FROM (SELECT DISTINCT launch, parent FROM launched) AS l
    JOIN parents AS p ON p.id = l.parent AND p.cat = 'python_function'
    JOIN launches AS c ON c.id = l.launch JOIN raw AS r ON r.rowid = l.launch
),
-- Among ops with the same External id and start, the one with the largest slice id is innermost.
numbered AS (
    SELECT external_id, track, ts, max("end") AS "end", max(id) AS op, arg_max(name, (id, name)) AS name
    FROM ops SEMI JOIN framed USING (external_id, track) WHERE input_dims <> '[]' GROUP BY external_id, track, ts
),
through_frames AS (
    SELECT f.launch, o.op, o.name
    FROM framed AS f ASOF JOIN numbered AS o ON o.external_id = f.external_id AND o.track = f.track AND o.ts <= f.ts
    WHERE o."end" >= f.ts
),
callers AS (SELECT id, name FROM parents WHERE cat IN ('cpu_op', 'user_annotation'))
SELECT f.id, f.rank, f.track, f.name,
       f.kind,
       coalesce(f.engine, CASE WHEN f.kind = 'collective' THEN 'collective' WHEN f.cat = 'kernel' THEN 'compute'
                               ELSE 'copy' END) AS engine,
       f.dtype, f.stream, f.device, nullif(f.recipe, 0) AS recipe,
       f.ts, f."end" - f.ts AS dur, f."end",
       f.bytes, l.launch, coalesce(p.id, t.op) AS op, coalesce(p.name, t.name) AS op_name,
       f.set_aside IS NULL AS valid, f.set_aside
FROM _device_work AS f
LEFT JOIN launched AS l ON l.id = f.id
LEFT JOIN callers AS p ON p.id = l.parent
LEFT JOIN through_frames AS t ON t.launch = l.launch
