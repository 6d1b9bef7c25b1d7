-- Every stretch of time in which nothing changes, and what goes on in it: bit c of mask is set while class c is
-- active on any lane of the rank. One sweep serves the breakdown of steps, the causes of idle time and the summary.
--
-- Device (kernels that only wait do not count as work): 0 compute kernel, 1 collective kernel, 2 and 3 the same under an op of a process group, 4 copy, 5 fill.
-- Host threads that do not feed the device: 6 process group (any thread), 7 runtime, 8 data loading, 9 framework op.
-- Host threads that feed it: 10 runtime call, 11 runtime call that copies, 12 fallback, 13 graph building, 14 data
-- loading, 15 framework op, 16 op of a process group, 17 optimizer, 18 Python, 19 annotation of a process group,
-- 25 op of an optimizer. Waits of these threads: 20 for the device, 21 for a compiler. 22 and 23: the work that ends a
-- gap is submitted, inside the gap and before it. 24 host calls that copy inputs to the device.
--
-- needs: device_ops, _device_work, _communication, slices, _names, roles, feeding_tracks, compilations, syncs, copies, launches, _gaps, _step_bounds
-- column rank: INTEGER, distributed rank
-- column ts: BIGINT, start in ns
-- column end: BIGINT, end in ns
-- column mask: BIGINT, the classes that are active
WITH communicating AS (SELECT DISTINCT rank, external_id FROM _communication WHERE external_id IS NOT NULL),
device AS (
    SELECT d.rank,
           CASE d.kind WHEN 'memcpy' THEN 4 WHEN 'memset' THEN 5
                       ELSE CASE WHEN d.kind = 'collective' THEN 1 ELSE 0 END
                            + CASE WHEN c.rank IS NOT NULL THEN 2 ELSE 0 END END AS class, d.ts, d."end"
    FROM device_ops AS d
    JOIN _device_work AS w USING (id)
    LEFT JOIN communicating AS c ON c.rank = w.rank AND c.external_id = w.external_id AND w.cat = 'kernel'
    WHERE d.valid AND d.kind <> 'wait'
),
host AS (
    SELECT s.rank, CASE WHEN f.track IS NULL THEN n.elsewhere ELSE n.feeding END AS class, s.ts, s."end", s.outermost
    FROM slices AS s
    JOIN _names AS n ON n.name = s.name AND n.cat = s.cat
    LEFT JOIN feeding_tracks AS f ON f.track = s.track
    WHERE s.side = 'host'
),
-- What ended each gap was submitted when its first host call returned.
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
    -- Calls inside calls, ops inside ops and Python inside Python add nothing.
    SELECT rank, class, ts, "end" FROM host WHERE outermost OR class NOT IN (7, 9, 10, 15, 18)
    UNION ALL SELECT rank, 6, ts, "end" FROM _communication
    UNION ALL SELECT s.rank, 20, s.ts, s."end" FROM syncs AS s JOIN feeding_tracks AS f ON f.track = s.track
    UNION ALL SELECT rank, 21, ts, "end" FROM compilations WHERE ts IS NOT NULL
    UNION ALL SELECT rank, 22, submitted, "end" FROM ended_by WHERE submitted > ts AND submitted < "end"
    UNION ALL SELECT rank, 23, ts, "end" FROM ended_by WHERE submitted <= ts
    UNION ALL
    SELECT s.rank, 24, s.ts, s."end" FROM copies AS c JOIN slices AS s ON s.id = c.call
    WHERE c.direction = 'host_to_device'
    UNION ALL
    SELECT rank, 24, ts, "end" FROM slices
    WHERE cat = 'runtime' AND name IN (SELECT name FROM roles WHERE cat = 'runtime' AND role = 'copy_in')
),
merged AS (
    SELECT * FROM interval_union(marked) WHERE class IS NOT NULL
    UNION ALL SELECT rank, -1, ts, "end" FROM _step_bounds
)
SELECT * FROM interval_sweep(merged)
