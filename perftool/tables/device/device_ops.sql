-- One row per unit of work on a device: kernels, copies, fills and collectives.
--
-- needs: _device_work, _links, launches, slices
-- empty without: _device_work
-- column id: BIGINT, slices.id
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, stream or engine lane (tracks.id)
-- column name: VARCHAR, kernel or copy name
-- column kind: VARCHAR, kernel, memcpy, memset, collective, or wait: a kernel that only waits, which does not count as work
-- column engine: VARCHAR, Gaudi engine group (MME, TPC, DMA, PDMA, NIC, ROT, other); elsewhere compute, copy or collective
-- column dtype: VARCHAR, data type when the trace names it (Gaudi)
-- column stream: VARCHAR, stream id when the trace names it
-- column device: VARCHAR, device index when the trace names it
-- column recipe: BIGINT, recipe the work belongs to (Gaudi)
-- column ts: BIGINT, start in ns
-- column dur: BIGINT, length in ns
-- column end: BIGINT, end in ns
-- column bytes: BIGINT, bytes moved, for copies
-- column launch: BIGINT, host call that submitted it (launches.id)
-- column op: BIGINT, framework op that submitted it (slices.id)
-- column op_name: VARCHAR, name of that op
-- column valid: BOOLEAN, false for impossible events, which no sum includes
-- column set_aside: VARCHAR, why it is impossible
WITH launched AS (
    -- Work that several calls share (a wrapper and the driver call inside it) belongs to the first.
    SELECT k.work AS id, first(l.id ORDER BY l.ts, l."end" DESC, l.id) AS launch,
           first(l.parent ORDER BY l.ts, l."end" DESC, l.id) FILTER (l.parent IS NOT NULL) AS parent
    FROM _links AS k JOIN launches AS l ON l.id = k.launch
    GROUP BY k.work
),
callers AS (
    SELECT id, name FROM slices WHERE id IN (SELECT parent FROM launched) AND cat IN ('cpu_op', 'user_annotation')
)
SELECT f.id, f.rank, f.track, f.name,
       f.kind,
       coalesce(f.engine, CASE WHEN f.kind = 'collective' THEN 'collective' WHEN f.cat = 'kernel' THEN 'compute'
                               ELSE 'copy' END) AS engine,
       f.dtype, f.stream, f.device, nullif(f.recipe, 0) AS recipe,
       f.ts, f."end" - f.ts AS dur, f."end",
       f.bytes, l.launch, p.id AS op, p.name AS op_name,
       f.set_aside IS NULL AS valid, f.set_aside
FROM _device_work AS f
LEFT JOIN launched AS l ON l.id = f.id
LEFT JOIN callers AS p ON p.id = l.parent
