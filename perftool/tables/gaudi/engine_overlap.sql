-- One row per rank whose trace shows engines: how long Gaudi's engines work alone and together in the window.
-- Overlapping lanes of an engine count once.
--
-- needs: _engine_masks, windows
-- empty without: _engine_masks
-- column rank: INTEGER, distributed rank
-- column steps: BIGINT, complete steps in the window
-- column window_ns: BIGINT, duration of the window
-- column busy_ns: BIGINT, time while any engine works
-- column mme_ns: BIGINT, time while the MME works
-- column tpc_ns: BIGINT, time while the TPC works
-- column dma_ns: BIGINT, time while DMA or PDMA works
-- column together_ns: BIGINT, time while both MME and TPC work
-- column mme_alone_ns: BIGINT, time while only the MME works
-- column tpc_alone_ns: BIGINT, time while only the TPC works
-- column dma_alone_ns: BIGINT, time while only copies run, not counting internal copies of the runtime or the profiler
SELECT m.rank, min(t.steps) AS steps, min(t.dur) AS window_ns,
       sum(m.ns)::BIGINT AS busy_ns,
       coalesce(sum(m.ns) FILTER (mask & 1 = 1), 0)::BIGINT AS mme_ns,
       coalesce(sum(m.ns) FILTER (mask & 2 = 2), 0)::BIGINT AS tpc_ns,
       coalesce(sum(m.ns) FILTER (mask & 20 > 0), 0)::BIGINT AS dma_ns,
       coalesce(sum(m.ns) FILTER (mask & 3 = 3), 0)::BIGINT AS together_ns,
       coalesce(sum(m.ns) FILTER (mask = 1), 0)::BIGINT AS mme_alone_ns,
       coalesce(sum(m.ns) FILTER (mask = 2), 0)::BIGINT AS tpc_alone_ns,
       coalesce(sum(m.ns) FILTER (mask = 4), 0)::BIGINT AS dma_alone_ns
FROM _engine_masks AS m JOIN windows AS t USING (rank)
GROUP BY m.rank
