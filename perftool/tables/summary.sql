-- One row per number of the summary. Times are clipped to the window and are totals over all ranks.
--
-- needs: steps, _windows, device_ops, device_busy, collectives, dataloader, compilations, syncs, memory, copies, _feeding_tracks, slices, _runtime, _engine_summary, fallbacks
-- column metric: VARCHAR, name of the number
-- column value: DOUBLE, NULL when the input lacks the signal
-- column unit: VARCHAR, ratio, ms, count or bytes
-- column numerator: DOUBLE, what was measured, in ms for ratios of time
-- column denominator: DOUBLE, what it is a share of, in ms for ratios of time
WITH win AS (SELECT sum("end" - ts) AS ns FROM _windows),
device_win AS (
    SELECT sum("end" - ts) AS ns FROM _windows WHERE rank IN (SELECT rank FROM device_ops WHERE valid)
),
complete AS (SELECT * FROM steps WHERE NOT partial),
clipped AS (
    SELECT d.rank, d.kind, d.engine, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN _windows AS w USING (rank) WHERE d.valid
),
classes AS (
    SELECT rank, CASE WHEN kind = 'collective' THEN 1 ELSE 0 END AS class, ts, "end"
    FROM clipped WHERE kind IN ('kernel', 'collective')
),
compute_and_collectives AS (SELECT * FROM interval_union(classes)),
overlap AS (SELECT rank, ts, "end", mask FROM interval_sweep(compute_and_collectives)),
kernels AS (
    SELECT sum("end" - ts) FILTER (mask & 1 = 1) AS compute, sum("end" - ts) FILTER (mask & 2 = 2) AS collective,
           sum("end" - ts) FILTER (mask = 2) AS exposed, sum("end" - ts) FILTER (mask > 0) AS any_kernel
    FROM overlap
),
busy AS (SELECT sum(dur) AS ns FROM device_busy),
host_time AS (
    SELECT s.rank, 0 AS class, greatest(s.ts, w.ts) AS ts, least(s."end", w."end") AS "end"
    FROM dataloader AS s JOIN _windows AS w USING (rank) JOIN _feeding_tracks AS f ON f.track = s.track
    UNION ALL
    SELECT s.rank, 1, greatest(s.ts, w.ts), least(s."end", w."end")
    FROM compilations AS s JOIN _windows AS w USING (rank) WHERE s.ts IS NOT NULL
    UNION ALL
    SELECT s.rank, 2, greatest(s.ts, w.ts), least(s."end", w."end")
    FROM copies AS c JOIN slices AS s ON s.id = c.call JOIN _windows AS w ON w.rank = s.rank
    WHERE c.direction = 'host_to_device'
    UNION ALL
    SELECT s.rank, 2, greatest(s.ts, w.ts), least(s."end", w."end")
    FROM slices AS s JOIN _windows AS w ON w.rank = s.rank WHERE starts_with(s.name, 'copy_hpu_lazy_H2D')
    UNION ALL
    -- The feeding threads work: anything but a wait for the device.
    SELECT s.rank, 3, s.ts, s."end" FROM slices AS s JOIN _feeding_tracks AS f ON f.track = s.track
    WHERE s.cat IN ('cpu_op', 'runtime') AND s.outermost AND NOT starts_with(s.name, 'ProfilerStep#')
    UNION ALL SELECT rank, 4, ts, "end" FROM syncs
    UNION ALL SELECT rank, 5, ts, "end" FROM device_busy
),
host_union AS (SELECT * FROM interval_union(host_time)),
host AS (
    SELECT sum("end" - ts) FILTER (mask & 1 = 1) AS loading, sum("end" - ts) FILTER (mask & 2 = 2) AS compiling,
           sum("end" - ts) FILTER (mask & 4 = 4) AS copying,
           sum("end" - ts) FILTER (mask & 56 = 40) AS working_while_busy
    FROM interval_sweep(host_union)
),
signals AS (
    SELECT (SELECT count(*) FROM dataloader) > 0 AS loader, (SELECT count(*) FROM slices WHERE side = 'host') > 0 AS host,
           (SELECT count(*) FROM device_ops WHERE valid) > 0 AS device,
           (SELECT count(*) FROM copies WHERE direction = 'host_to_device') > 0 AS input_copies,
           (SELECT count(*) FROM memory WHERE device_type > 0) > 0 AS device_memory,
           (SELECT count(*) FROM _runtime) > 0 AS runtime
),
ratios AS (
    SELECT 'device_busy_ratio' AS metric, busy.ns AS numerator, device_win.ns AS denominator FROM busy, device_win
    UNION ALL SELECT 'device_idle_ratio', device_win.ns - busy.ns, device_win.ns FROM busy, device_win
    UNION ALL SELECT 'kernel_busy_ratio', any_kernel, device_win.ns FROM kernels, device_win
    UNION ALL SELECT 'exposed_collective_ratio', coalesce(exposed, 0), device_win.ns FROM kernels, device_win
              WHERE collective > 0
    UNION ALL SELECT 'device_host_overlap_ratio', coalesce(working_while_busy, 0), busy.ns
              FROM host, busy, signals WHERE host
    UNION ALL SELECT 'dataloader_ratio', coalesce(loading, 0), win.ns FROM host, win, signals WHERE loader
    UNION ALL SELECT 'input_copy_ratio', coalesce(copying, 0), win.ns FROM host, win, signals WHERE input_copies
    UNION ALL SELECT 'compile_ratio', coalesce(compiling, 0), win.ns FROM host, win, signals WHERE host
),
numbers AS (
    SELECT 'steps' AS metric, count(*)::DOUBLE AS value, 'count' AS unit FROM complete WHERE step IS NOT NULL
    UNION ALL SELECT 'step_time_ms', median(dur) / 1e6, 'ms' FROM complete
    UNION ALL SELECT 'window_ms', win.ns / 1e6, 'ms' FROM win
    UNION ALL SELECT 'kernel_time_ms', compute / 1e6, 'ms' FROM kernels
    UNION ALL SELECT 'collective_time_ms', collective / 1e6, 'ms' FROM kernels
    UNION ALL SELECT 'compilations',
                     (SELECT count(*) FROM compilations AS c JOIN _windows AS w
                      ON w.rank = c.rank AND c.ts >= w.ts AND c.ts < w."end"), 'count' FROM signals WHERE host
    -- Without a trace there is no window: all that the logs tell of.
    UNION ALL SELECT 'compilations', count(*), 'count' FROM compilations HAVING count(*) > 0 AND bool_and(ts IS NULL)
    UNION ALL SELECT 'syncs_per_step',
                     (SELECT count(*) FROM syncs AS s JOIN _windows AS w
                      ON w.rank = s.rank AND s.ts >= w.ts AND s.ts < w."end")
                     / (SELECT greatest(count(*), 1) FROM complete), 'count' FROM signals WHERE runtime
    UNION ALL SELECT 'peak_memory_bytes', max(allocated), 'bytes' FROM memory WHERE device_type > 0
)
SELECT metric, numerator / nullif(denominator, 0) AS value, 'ratio' AS unit, numerator / 1e6 AS numerator,
       denominator / 1e6 AS denominator
FROM ratios
UNION ALL SELECT metric, value, unit, NULL, NULL FROM numbers
UNION ALL SELECT metric, value, unit, numerator, denominator FROM _engine_summary
UNION ALL
SELECT 'fallback_ops', count(DISTINCT base), 'count', NULL, NULL
FROM fallbacks HAVING count(*) > 0 OR (SELECT count(*) FROM _log_fallback_sources) > 0
