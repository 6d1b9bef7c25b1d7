-- The times of Gaudi's engines in the window, one row per rank whose trace has engine lanes. Overlapping lanes count
-- once. The summary adds up these values over ranks.
--
-- needs: _engine_masks, device_ops, windows, slices, tracks, _name_roles, _vocabulary
-- empty without: tracks.engine
-- column rank: INTEGER, distributed rank
-- column window_ns: BIGINT, duration of the window
-- column any_ns: BIGINT, time while any engine works
-- column mme_ns: BIGINT, time while the MME works
-- column tpc_ns: BIGINT, time while the TPC works
-- column dma_ns: BIGINT, time while DMA or PDMA works
-- column together_ns: BIGINT, time while both MME and TPC work
-- column tpc_alone_ns: BIGINT, time while the TPC works and the MME does not
-- column dma_alone_ns: BIGINT, time while DMA works, and neither MME nor TPC does
-- column others_ns: BIGINT, time while other engines work and MME, TPC and DMA do not
-- column low_ns: BIGINT, time while the MME works on types narrower than 32 bits
-- column typed_ns: BIGINT, time while the MME works on 32-bit or narrower types
-- column build_ns: BIGINT, time while the host builds lazy graphs
-- column bridge: BOOLEAN, whether the bridge's events are recorded
WITH win AS (
    SELECT rank, "end" - ts AS ns FROM windows WHERE rank IN (SELECT rank FROM tracks WHERE engine IS NOT NULL)
),
together AS (
    SELECT rank, sum(ns) FILTER (mask & 1 = 1) AS mme, sum(ns) FILTER (mask & 2 = 2) AS tpc,
           sum(ns) FILTER (mask & 20 > 0) AS dma, sum(ns) FILTER (mask & 3 = 3) AS mme_and_tpc,
           sum(ns) FILTER (mask & 3 = 2) AS tpc_alone, sum(ns) FILTER (mask & 3 = 0 AND mask & 20 > 0) AS dma_alone,
           sum(ns) FILTER (mask = 8) AS others_alone, sum(ns) AS any_engine
    FROM _engine_masks GROUP BY rank
),
matrix AS (
    SELECT d.rank, CASE WHEN regexp_matches(dtype, '^(bf|bfloat|h?f(loat|p)?|u?int)_?(16|8|4)|^fp8|^hf8', 'i') THEN 0
                        WHEN regexp_matches(dtype, '^(float32|fp32|f32|tf32|u?int32)$', 'i') THEN 1 END AS class,
           greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN windows AS w USING (rank) WHERE d.valid AND d.engine = 'MME'
),
typed AS (SELECT rank, class, ts, "end" FROM matrix WHERE class IS NOT NULL),
precision AS (
    SELECT rank, sum(ns) FILTER (class = 0) AS low, sum(ns) AS every FROM interval_lengths(typed) GROUP BY rank
),
building AS (
    SELECT s.rank, 0 AS class, greatest(s.ts, w.ts) AS ts, least(s."end", w."end") AS "end"
    FROM slices AS s JOIN _name_roles AS n ON n.name = s.name AND n.cat = s.cat JOIN windows AS w ON w.rank = s.rank
    WHERE n.cat = 'runtime' AND list_contains(n.roles, 'graph_build')
),
built AS (FROM interval_lengths(building))
SELECT rank, w.ns AS window_ns, coalesce(t.any_engine, 0)::BIGINT AS any_ns, coalesce(t.mme, 0)::BIGINT AS mme_ns,
       coalesce(t.tpc, 0)::BIGINT AS tpc_ns, coalesce(t.dma, 0)::BIGINT AS dma_ns,
       coalesce(t.mme_and_tpc, 0)::BIGINT AS together_ns, coalesce(t.tpc_alone, 0)::BIGINT AS tpc_alone_ns,
       coalesce(t.dma_alone, 0)::BIGINT AS dma_alone_ns, coalesce(t.others_alone, 0)::BIGINT AS others_ns,
       coalesce(p.low, 0)::BIGINT AS low_ns, coalesce(p.every, 0)::BIGINT AS typed_ns,
       coalesce(b.ns, 0)::BIGINT AS build_ns,
       -- If debug activities are not recorded, the bridge's calls appear on the calling threads.
       b.ns IS NOT NULL OR rank IN (SELECT t.rank FROM tracks AS t JOIN _vocabulary AS v
                ON v.subject = 'process' AND v.role = 'bridge' AND lower(t.process) GLOB v.pattern) AS bridge
FROM win AS w
LEFT JOIN together AS t USING (rank)
LEFT JOIN precision AS p USING (rank)
LEFT JOIN built AS b USING (rank)
