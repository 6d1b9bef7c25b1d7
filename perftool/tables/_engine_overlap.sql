-- Which Gaudi engines of a device work alone and which together, over the window. Lanes of an engine count once.
--
-- needs: device_ops, _windows, steps
-- column rank: INTEGER, distributed rank
-- column steps: BIGINT, complete steps in the window, at least 1
-- column window_ns: BIGINT, length of the window
-- column busy_ns: BIGINT, any engine works
-- column mme_ns: BIGINT, the MME works
-- column tpc_ns: BIGINT, the TPC works
-- column dma_ns: BIGINT, DMA or PDMA work
-- column together_ns: BIGINT, MME and TPC work at the same time
-- column mme_alone_ns: BIGINT, the MME works and nothing else
-- column tpc_alone_ns: BIGINT, the TPC works and nothing else
-- column dma_alone_ns: BIGINT, copies run and nothing else
WITH work AS (
    SELECT d.rank, CASE d.engine WHEN 'MME' THEN 0 WHEN 'TPC' THEN 1 WHEN 'DMA' THEN 2 WHEN 'PDMA' THEN 2 ELSE 3 END
               AS class, greatest(d.ts, w.ts) AS ts, least(d."end", w."end") AS "end"
    FROM device_ops AS d JOIN _windows AS w ON w.rank = d.rank AND d.ts < w."end" AND d."end" > w.ts
    WHERE d.valid AND d.engine IN ('MME', 'TPC', 'DMA', 'PDMA', 'NIC', 'ROT', 'other')
),
engines AS (SELECT * FROM interval_union(work)),
stretches AS (SELECT rank, "end" - ts AS ns, mask FROM interval_sweep(engines) WHERE mask > 0),
counted AS (SELECT rank, count(*) AS steps FROM steps WHERE NOT partial GROUP BY rank)
SELECT s.rank, greatest(min(c.steps), 1) AS steps, min(w."end" - w.ts) AS window_ns,
       sum(ns)::BIGINT AS busy_ns,
       coalesce(sum(ns) FILTER (mask & 1 = 1), 0)::BIGINT AS mme_ns,
       coalesce(sum(ns) FILTER (mask & 2 = 2), 0)::BIGINT AS tpc_ns,
       coalesce(sum(ns) FILTER (mask & 4 = 4), 0)::BIGINT AS dma_ns,
       coalesce(sum(ns) FILTER (mask & 3 = 3), 0)::BIGINT AS together_ns,
       coalesce(sum(ns) FILTER (mask = 1), 0)::BIGINT AS mme_alone_ns,
       coalesce(sum(ns) FILTER (mask = 2), 0)::BIGINT AS tpc_alone_ns,
       coalesce(sum(ns) FILTER (mask = 4), 0)::BIGINT AS dma_alone_ns
FROM stretches AS s JOIN _windows AS w USING (rank) LEFT JOIN counted AS c USING (rank)
GROUP BY s.rank
