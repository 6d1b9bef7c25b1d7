-- The intervals of each activity, which may overlap. _timeline is derived from them and describes the activities.
--
-- needs: device_ops, _device_work, _communication, slices, _optimizer_calls, _name_roles, roles, feeding_tracks, compilations, syncs, copies, launches, _gaps, start_up, phases
-- empty without: slices
-- column rank: INTEGER, distributed rank
-- column class: INTEGER, number of the activity's bit in a mask
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
WITH communicating AS (SELECT DISTINCT rank, external_id FROM _communication WHERE external_id IS NOT NULL),
device AS (
    SELECT d.rank,
           class_of(CASE WHEN d.op = d.id THEN 'cpu_compute'
                         WHEN d.kind = 'memcpy' THEN 'copy' WHEN d.kind = 'memset' THEN 'fill'
                         WHEN d.kind = 'collective' THEN CASE WHEN c.rank IS NULL THEN 'collective' ELSE 'group_collective' END
                         ELSE CASE WHEN c.rank IS NULL THEN 'compute' ELSE 'group_compute' END END) AS class,
           d.ts, d."end"
    FROM device_ops AS d
    JOIN _device_work AS w USING (id)
    LEFT JOIN communicating AS c ON c.rank = w.rank AND c.external_id = w.external_id AND w.cat = 'kernel'
    WHERE d.valid AND d.kind <> 'wait'
),
host AS (
    SELECT s.rank, CASE WHEN f.track IS NULL THEN n.elsewhere ELSE n.feeding END AS doing, coalesce(o.ts, s.ts) AS ts, s."end", s.outermost
    FROM slices AS s
    JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat
    LEFT JOIN feeding_tracks AS f ON f.track = s.track
    LEFT JOIN _optimizer_calls AS o ON o.id = s.id
    WHERE s.side = 'host'
),
-- The work after a gap counts as submitted when the first of its host calls returns.
ended_by AS (
    SELECT g.id, g.rank, g.ts, g."end", min(l."end") AS submitted
    FROM _gaps AS g
    JOIN device_ops AS d ON d.rank = g.rank AND d.ts = g."end" AND d.valid
    JOIN launches AS l ON l.id = d.launch
    GROUP BY ALL
),
marked AS (
    SELECT * FROM device
    UNION ALL
    -- Among nested calls, ops and Python frames, only the outermost are needed.
    SELECT rank, class_of(doing), ts, "end" FROM host
    WHERE outermost OR doing NOT IN ('other_call', 'other_op', 'call', 'op', 'wrapper', 'python')
    UNION ALL SELECT rank, class_of('process_group'), ts, "end" FROM _communication
    UNION ALL
    SELECT rank, class_of('group_wait'), ts, "end" FROM _communication
    WHERE name IN (SELECT name FROM roles WHERE role = 'host_collective')
    UNION ALL SELECT s.rank, class_of('device_wait'), s.ts, s."end" FROM syncs AS s JOIN feeding_tracks AS f ON f.track = s.track
    UNION ALL SELECT rank, class_of('compile'), ts, "end" FROM compilations WHERE ts IS NOT NULL
    UNION ALL SELECT u.rank, class_of('start_up'), u.ts, u."end" FROM start_up AS u JOIN feeding_tracks AS f ON f.track = u.track
    UNION ALL SELECT rank, class_of('capturing'), ts, "end" FROM phases WHERE phase = 'capture'
    UNION ALL SELECT rank, class_of('recorder'), ts, "end" FROM phases WHERE phase = 'profiler'
    UNION ALL SELECT rank, class_of('saving'), ts, "end" FROM phases WHERE phase = 'checkpoint'
    UNION ALL SELECT rank, class_of('submitted_late'), submitted, "end" FROM ended_by WHERE submitted > ts AND submitted < "end"
    UNION ALL SELECT rank, class_of('submitted_early'), ts, "end" FROM ended_by WHERE submitted <= ts
    UNION ALL
    SELECT s.rank, class_of('input_copy'), s.ts, s."end" FROM copies AS c JOIN slices AS s ON s.id = c.call
    WHERE c.direction = 'host_to_device'
    UNION ALL
    SELECT rank, class_of('input_copy'), ts, "end" FROM slices
    WHERE cat = 'runtime' AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'copy_in')
)
SELECT * FROM marked WHERE class IS NOT NULL
