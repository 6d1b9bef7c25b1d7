-- One row per number of the summary. Times are clipped to the window and are totals over all ranks.
--
-- needs: steps, _timeline, _windows, device_ops, device_busy, collectives, dataloader, compilations, syncs, memory, copies, _feeding_tracks, slices, _runtime, _engine_summary, fallbacks
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
moments AS (
    SELECT t."end" - t.ts AS ns, mask, mask & class_bits([0, 2]) > 0 AS computing,
           mask & class_bits([1, 3]) > 0 AS communicating
    FROM _timeline AS t JOIN _windows AS w ON w.rank = t.rank AND t.ts >= w.ts AND t."end" <= w."end"
),
kernels AS (
    SELECT sum(ns) FILTER (computing) AS compute, sum(ns) FILTER (communicating) AS collective,
           sum(ns) FILTER (communicating AND NOT computing) AS exposed,
           sum(ns) FILTER (computing OR communicating) AS any_kernel
    FROM moments
),
busy AS (SELECT sum(dur) AS ns FROM device_busy),
host AS (
    SELECT sum(ns) FILTER (mask & class_bits([14]) > 0) AS loading, sum(ns) FILTER (mask & class_bits([21]) > 0) AS compiling,
           sum(ns) FILTER (mask & class_bits([24]) > 0) AS copying,
           -- The feeding threads work: anything but a wait for the device.
           sum(ns) FILTER (mask & class_bits([0, 1, 2, 3, 4, 5]) > 0 AND mask & class_bits([20]) = 0
               AND mask & class_bits([10, 11, 12, 13, 14, 15, 16, 17, 18, 25]) > 0) AS working_while_busy
    FROM moments
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
