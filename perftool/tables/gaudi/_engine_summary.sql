-- The summary's numbers about Gaudi's engines, over all ranks. The partition assigns every nanosecond of the window
-- to one engine: MME first, then TPC, DMA, other engines, idle.
--
-- needs: _engine_totals
-- empty without: _engine_totals
-- column metric: VARCHAR, name of the number
-- column value: DOUBLE, in ms or a ratio
-- column numerator: DOUBLE, in ms
-- column denominator: DOUBLE, in ms
WITH whole AS (
    SELECT sum(window_ns) AS ns, sum(any_ns) AS any_engine, sum(mme_ns) AS mme, sum(tpc_ns) AS tpc, sum(dma_ns) AS dma,
           sum(together_ns) AS mme_and_tpc, sum(tpc_alone_ns) AS tpc_alone, sum(dma_alone_ns) AS dma_alone,
           sum(others_ns) AS others_alone, sum(low_ns) AS low, sum(typed_ns) AS typed, sum(build_ns) AS build,
           bool_or(bridge) AS bridge
    FROM _engine_totals
),
times AS (
    SELECT UNNEST([
        {'metric': 'mme_time_ms', 'part': nullif(mme, 0)}, {'metric': 'tpc_time_ms', 'part': nullif(tpc, 0)},
        {'metric': 'dma_time_ms', 'part': nullif(dma, 0)},
        {'metric': 'mme_tpc_overlap_ms', 'part': CASE WHEN mme > 0 AND tpc > 0 THEN mme_and_tpc END},
        {'metric': 'partition_mme_ms', 'part': mme}, {'metric': 'partition_tpc_ms', 'part': tpc_alone},
        {'metric': 'partition_dma_ms', 'part': dma_alone}, {'metric': 'partition_other_ms', 'part': others_alone},
        {'metric': 'partition_idle_ms', 'part': ns - any_engine},
        {'metric': 'engines_idle_ms', 'part': ns - any_engine}], recursive := true), ns AS whole
    FROM whole WHERE any_engine > 0
)
SELECT metric, part / 1e6 AS value, part / 1e6 AS numerator, whole / 1e6 AS denominator FROM times
WHERE part IS NOT NULL -- an engine without a lane is unknown, not idle
UNION ALL
SELECT 'mme_low_precision_ratio', low / typed, low / 1e6, typed / 1e6 FROM whole WHERE typed > 0
UNION ALL
SELECT 'graph_build_ratio', build / nullif(ns, 0), build / 1e6, ns / 1e6 FROM whole WHERE bridge
