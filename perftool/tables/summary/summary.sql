-- One row per number of the summary. Times are clipped to the window and summed over all ranks.
--
-- needs: steps, _rank_totals, _engine_summary, _serving_summary, compilations, fallbacks, _log_fallback_sources, _efficiency_totals, _metric_units
-- column metric: VARCHAR, name of the number
-- column value: DOUBLE, value of the number; NULL if the input does not show it
-- column unit: VARCHAR, ratio, ms, count, bytes or per_s
-- column numerator: DOUBLE, measured value, in ms for ratios of time
-- column denominator: DOUBLE, denominator of the ratio, in ms for ratios of time
WITH whole AS (
    SELECT sum(window_ns) AS win, sum(window_ns - unknown_ns) FILTER (device) AS device_win,
           sum(unknown_ns) AS unknown, sum(window_ns) FILTER (device) AS device_recorded, sum(busy_ns) AS busy,
           sum(compute_ns) AS compute, sum(collective_ns) AS collective, sum(exposed_ns) AS exposed,
           sum(kernel_ns) AS any_kernel, sum(loading_ns) AS loading, sum(compiling_ns) AS compiling,
           sum(copying_ns) AS copying, sum(overlap_ns) AS working_while_busy, sum(compilations) AS compilations,
           sum(syncs) AS syncs, sum(steps) AS steps, max(peak_bytes) AS peak, bool_or(host) AS host,
           bool_or(loader) AS loader, bool_or(inputs) AS inputs, bool_or(runtime) AS runtime
    FROM _rank_totals
),
-- Floating-point sums need a fixed order to be reproducible.
-- A ratio that covers only part of the work is used only if that part is large enough.
best AS (
    SELECT sum(best_ns ORDER BY best_ns) AS at_best, sum(bounded_ns) AS bounded, sum(peak_ns ORDER BY peak_ns) AS at_peak,
           sum(recomputed_ns ORDER BY recomputed_ns) AS recomputed, sum(passes_ns) AS passes,
           bool_and(bounded_ns >= 0.5 * work_ns) AS bounded_all,
           bool_and(peak_ns IS NOT NULL AND counted_ns >= 0.9 * matrix_ns AND bounded_ns >= 0.5 * work_ns) AS counted_all
    FROM _efficiency_totals
),
complete AS (SELECT * FROM steps WHERE NOT partial),
-- Ranks wait for one another, so the slowest rank determines the step time.
rank_medians AS (SELECT rank, count(step) > 0 AS stepped, median(dur) AS ns FROM complete GROUP BY rank),
-- The step time is unknown if a rank's steps are mostly incomplete (a recording may truncate its first and last step),
-- or if most of their kernels are missing.
mostly_incomplete AS (
    SELECT rank FROM steps GROUP BY rank
    HAVING count(*) FILTER (left_out = 'incomplete') > greatest(2, count(*) FILTER (NOT partial))
    UNION ALL SELECT rank FROM _rank_totals WHERE lost_kernels_ratio > 0.5
),
ratios AS (
    SELECT 'device_busy_ratio' AS metric, busy AS numerator, device_win AS denominator FROM whole
    UNION ALL SELECT 'device_idle_ratio', device_win - busy, device_win FROM whole
    UNION ALL SELECT 'device_unknown_ratio', unknown, device_recorded FROM whole
    UNION ALL SELECT 'kernel_busy_ratio', any_kernel, device_win FROM whole
    UNION ALL SELECT 'exposed_collective_ratio', coalesce(exposed, 0), device_win FROM whole WHERE collective > 0
    UNION ALL SELECT 'device_host_overlap_ratio', working_while_busy, busy FROM whole WHERE host
    UNION ALL SELECT 'dataloader_ratio', loading, win FROM whole WHERE loader
    UNION ALL SELECT 'input_copy_ratio', copying, win FROM whole WHERE inputs
    UNION ALL SELECT 'compile_ratio', compiling, win FROM whole WHERE host
    UNION ALL SELECT 'mfu_ratio', at_peak - recomputed, device_win FROM best, whole WHERE counted_all
    UNION ALL SELECT 'hfu_ratio', at_peak, device_win FROM best, whole WHERE counted_all
    UNION ALL SELECT 'roofline_ratio', at_best, bounded FROM best WHERE bounded_all AND bounded > 0
),
numbers AS (
    SELECT 'steps' AS metric, count(*)::DOUBLE AS value FROM complete WHERE step IS NOT NULL
    -- If only some ranks have steps, a rank without steps may be the slowest.
    UNION ALL SELECT 'step_time_ms', CASE WHEN bool_and(stepped) OR NOT bool_or(stepped) THEN nullif(max(ns), 0) END / 1e6
              FROM rank_medians WHERE NOT EXISTS (FROM mostly_incomplete)
    UNION ALL SELECT 'window_ms', win / 1e6 FROM whole
    UNION ALL SELECT 'passes_time_ms', nullif(passes, 0) / 1e6 FROM best
    UNION ALL SELECT 'kernel_time_ms', compute / 1e6 FROM whole
    UNION ALL SELECT 'collective_time_ms', collective / 1e6 FROM whole
    UNION ALL SELECT 'compilations', compilations FROM whole WHERE host
    -- Without a trace there is no window: count all compilations in the logs.
    UNION ALL SELECT 'compilations', count(*) FROM compilations
              HAVING count(*) > 0 AND NOT EXISTS (FROM whole WHERE host)
    UNION ALL SELECT 'syncs_per_step', syncs / greatest(steps, 1) FROM whole WHERE runtime
    UNION ALL SELECT 'peak_memory_bytes', peak FROM whole
),
measured AS (
    SELECT metric, numerator / nullif(denominator, 0) AS value, numerator / 1e6 AS numerator, denominator / 1e6 AS denominator
    FROM ratios
    UNION ALL SELECT metric, value, NULL, NULL FROM numbers
    UNION ALL SELECT metric, value, numerator, denominator FROM _engine_summary
    UNION ALL SELECT metric, value, NULL, NULL FROM _serving_summary
    UNION ALL
    SELECT 'fallback_ops', count(DISTINCT base), NULL, NULL
    FROM fallbacks HAVING count(*) > 0 OR (SELECT count(*) FROM _log_fallback_sources) > 0
)
SELECT metric, value, unit, numerator, denominator FROM measured JOIN _metric_units USING (metric)
