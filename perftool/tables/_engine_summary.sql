-- The summary's numbers about Gaudi's engines. Unions count overlapping lanes once; the partition gives every
-- nanosecond of the window to one engine: MME first, then TPC, DMA, other engines, idle.
--
-- needs: device_ops, _windows, slices, tracks, _names
-- column metric: VARCHAR, name of the number
-- column value: DOUBLE, in unit
-- column unit: VARCHAR, ms or ratio
-- column numerator: DOUBLE, in ms
-- column denominator: DOUBLE, in ms
WITH win AS (SELECT sum("end" - ts) AS ns FROM _windows WHERE rank IN (SELECT rank FROM tracks WHERE engine IS NOT NULL)),
work AS (
    SELECT d.rank, CASE d.engine WHEN 'MME' THEN 0 WHEN 'TPC' THEN 1 WHEN 'DMA' THEN 2 WHEN 'PDMA' THEN 2 ELSE 3 END
               AS class, d.dtype, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN _windows AS w USING (rank) JOIN tracks AS t ON t.id = d.track
    WHERE d.valid AND t.engine IS NOT NULL
),
engines AS (SELECT * FROM interval_union(work)),
together AS (
    SELECT sum("end" - ts) FILTER (mask & 1 = 1) AS mme, sum("end" - ts) FILTER (mask & 2 = 2) AS tpc,
           sum("end" - ts) FILTER (mask & 4 = 4) AS dma, sum("end" - ts) FILTER (mask & 3 = 3) AS mme_and_tpc,
           sum("end" - ts) FILTER (mask & 3 = 2) AS tpc_alone, sum("end" - ts) FILTER (mask & 7 = 4) AS dma_alone,
           sum("end" - ts) FILTER (mask = 8) AS others_alone, sum("end" - ts) FILTER (mask > 0) AS any_engine
    FROM interval_sweep(engines)
),
matrix AS (
    SELECT rank, CASE WHEN regexp_matches(dtype, '^(bf|bfloat|h?f(loat|p)?|u?int)_?(16|8|4)|^fp8|^hf8', 'i') THEN 0
                      WHEN regexp_matches(dtype, '^(float32|fp32|f32|tf32|u?int32)$', 'i') THEN 1 END AS class, ts, "end"
    FROM work WHERE class = 0
),
typed AS (SELECT rank, class, ts, "end" FROM matrix WHERE class IS NOT NULL),
precision AS (
    SELECT coalesce(sum("end" - ts) FILTER (class = 0), 0) AS low, sum("end" - ts) AS every
    FROM interval_union(typed)
),
building AS (
    SELECT s.rank, 0 AS class, greatest(s.ts, w.ts) AS ts, least(s."end", w."end") AS "end"
    FROM slices AS s JOIN _names AS n ON n.name = s.name AND n.cat = s.cat JOIN _windows AS w ON w.rank = s.rank
    WHERE n.feeding = 13
),
built AS (
    SELECT coalesce(sum("end" - ts), 0) AS ns FROM interval_union(building)
    WHERE EXISTS (SELECT 1 FROM tracks WHERE process = 'Bridge Logs')
),
times AS (
    SELECT UNNEST([
        {'metric': 'mme_time_ms', 'ns': mme}, {'metric': 'tpc_time_ms', 'ns': tpc},
        {'metric': 'dma_time_ms', 'ns': dma},
        {'metric': 'mme_tpc_overlap_ms', 'ns': CASE WHEN mme > 0 AND tpc > 0 THEN coalesce(mme_and_tpc, 0) END},
        {'metric': 'partition_mme_ms', 'ns': coalesce(mme, 0)},
        {'metric': 'partition_tpc_ms', 'ns': coalesce(tpc_alone, 0)},
        {'metric': 'partition_dma_ms', 'ns': coalesce(dma_alone, 0)},
        {'metric': 'partition_other_ms', 'ns': coalesce(others_alone, 0)},
        {'metric': 'partition_idle_ms', 'ns': win.ns - any_engine},
        {'metric': 'engines_idle_ms', 'ns': win.ns - any_engine}], recursive := true), win.ns AS whole
    FROM together, win WHERE any_engine > 0
)
SELECT metric, ns / 1e6 AS value, 'ms' AS unit, ns / 1e6 AS numerator, whole / 1e6 AS denominator FROM times
WHERE ns IS NOT NULL -- an engine without a lane is missing, not idle
UNION ALL
SELECT 'mme_low_precision_ratio', low / every, 'ratio', low / 1e6, every / 1e6 FROM precision WHERE every > 0
UNION ALL
SELECT 'graph_build_ratio', b.ns / win.ns, 'ratio', b.ns / 1e6, win.ns / 1e6 FROM built AS b, win
WHERE EXISTS (SELECT 1 FROM tracks WHERE process = 'Bridge Logs')
