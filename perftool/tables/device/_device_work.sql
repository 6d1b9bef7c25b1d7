-- Work on a device, and why impossible events are set aside. If the CPU is the device, the work is its ops (_cpu_work).
--
-- needs: slices, tracks, _extents, _name_roles, monitors, _vocabulary, _cpu_work
-- empty without: tracks.side=device or _cpu_work
-- column id: BIGINT, slices.id of the device event; of the op where the CPU is the device
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, tracks.id
-- column name: VARCHAR, kernel or copy name
-- column cat: VARCHAR, kernel, memcpy or memset
-- column kind: VARCHAR, cat, or collective, or wait (a kernel that only waits)
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column engine: VARCHAR, Gaudi engine group, NULL elsewhere
-- column stream: VARCHAR, stream id
-- column device: VARCHAR, device index
-- column bytes: BIGINT, bytes moved, for copies
-- column dtype: VARCHAR, data type (Gaudi)
-- column recipe: BIGINT, id of the recipe (Gaudi), 0 for none
-- column direction: VARCHAR, of a copy: host_to_device, device_to_host, device_to_device or peer; NULL if not recorded
-- column internal: BOOLEAN, whether this is an internal transfer of the runtime or the profiler, without user data (Gaudi)
-- column transfer: BOOLEAN, whether this moves the user's data between host and device (Gaudi)
-- column correlation: BIGINT, id shared with the launch
-- column external_id: BIGINT, id of the framework op
-- column set_aside: VARCHAR, why the event is impossible; NULL for valid events
WITH collective_lanes AS (
    SELECT t.id FROM tracks AS t
    JOIN _vocabulary AS v ON v.subject = 'thread' AND v.role = 'collective' AND lower(t.thread) GLOB v.pattern
),
placed AS (
    SELECT s.id, s.rank, s.track, s.name, s.cat, s.ts, s."end", t.engine,
           -- A stream runs in order, so the next work starts after this work ends. With programmatic dependent launch,
           -- the next few kernels may start early, but the fourth may not.
           lead(s.ts, 4) OVER (PARTITION BY s.track ORDER BY s.ts, s."end") AS fourth_next
    FROM slices AS s
    JOIN tracks AS t ON t.id = s.track
    -- On Gaudi, flow arrows add events of zero length, which are left out.
    WHERE s.side = 'device' AND s.cat IN ('kernel', 'memcpy', 'memset') AND (t.engine IS NULL OR s.dur <> 0)
),
work AS (
    SELECT p.*,
           -- Read all values at once, because each access to the arguments parses the whole text.
           json_extract_string(r.args, [
               '$.correlation', '$."External id"', '$."external id"', '$."graph node id"', '$.stream', '$.device',
               '$.bytes', '$.size', '$.dataType', '$.recipeId', '$.direction']) AS a
    FROM placed AS p JOIN raw AS r ON r.rowid = p.id
    -- Gaudi's monitors write several records per execution, some of which only mark a point in time. Other devices have
    -- no monitors.
    WHERE coalesce(CASE WHEN p.engine IS NOT NULL THEN r.args ->> 'HW event name' END, '')
          NOT IN (SELECT monitor FROM monitors WHERE role = 'point')
)
SELECT w.id, w.rank, w.track, w.name, w.cat,
       (CASE WHEN w.engine = 'NIC' OR w.track IN (SELECT id FROM collective_lanes) OR list_contains(n.roles, 'collective') THEN 'collective'
             WHEN list_contains(n.roles, 'wait') THEN 'wait' ELSE w.cat END)::event_category AS kind,
       w.ts, w."end", w.engine,
       a[5] AS stream, a[6] AS device, size_of(coalesce(a[7], a[8])) AS bytes, nullif(a[9], '') AS dtype,
       try_cast(a[10] AS INTEGER)::BIGINT AS recipe, coalesce(n.direction, CASE WHEN a[11] IN ('HOST_TO_DEVICE', 'DEVICE_TO_HOST', 'DEVICE_TO_DEVICE') THEN lower(a[11]) END) AS direction,
       coalesce(list_contains(n.roles, 'internal'), false) AS internal,
       NOT internal AND coalesce(w.engine = 'PDMA' OR w.engine IS NOT NULL AND n.direction IN ('host_to_device', 'device_to_host'), false) AS transfer,
       try_cast(a[1] AS BIGINT) AS correlation, try_cast(coalesce(a[2], a[3]) AS BIGINT) AS external_id,
       CASE WHEN w."end" < w.ts THEN 'negative length'
            WHEN NOT is_length(w."end" - w.ts) THEN 'impossible length'
            WHEN w."end" - w.ts > e.host_end - e.host_ts THEN 'longer than the whole recording'
            WHEN w."end" > e.recorded_until THEN 'ends after the recording'
            -- Branches of a device graph share the lane of the stream that launched the graph.
            WHEN w.engine IS NULL AND coalesce(a[4], '0') = '0' AND fourth_next < w."end"
                THEN 'overlaps later work on its own stream'
       END AS set_aside
FROM work AS w
LEFT JOIN _extents AS e USING (rank)
LEFT JOIN _name_roles AS n ON n.name = w.name AND n.cat = w.cat
UNION ALL
SELECT id, rank, track, name, 'kernel', 'kernel', ts, "end", NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, false, NULL, NULL, NULL
FROM _cpu_work
