-- One row per complete event: an interval on a track. Events written as begin and end are joined to one.
--
-- needs: tracks, _spans, _nesting
-- column id: BIGINT, identifies the slice within the store
-- column rank: INTEGER, distributed rank
-- column track: BIGINT, the lane (tracks.id)
-- column side: VARCHAR, 'host' or 'device'
-- column name: VARCHAR, the event's name
-- column cat: VARCHAR, normalised category: cpu_op, user_annotation, python_function, runtime, kernel, memcpy, memset, device_annotation, overhead, trace; others in lower case as written
-- column ts: BIGINT, start in ns, as in the file
-- column dur: BIGINT, length in ns; negative when the file says so
-- column end: BIGINT, ts + dur
-- column depth: INTEGER, number of slices of the track that are open when this one starts; 0 on device tracks
-- column parent: BIGINT, the innermost of these (slices.id), NULL at depth 0
SELECT s.id, s.rank, s.track, t.side, r.name,
       CASE WHEN t.side = 'device' AND c.side = 'lane' THEN
                CASE WHEN r.name ILIKE 'memcpy%' OR t.engine IN ('DMA', 'PDMA') THEN 'memcpy'
                     WHEN r.name ILIKE 'memset%' THEN 'memset' ELSE 'kernel' END
            WHEN lower(r.cat) = 'mtia_ccp_events' AND r.name = 'dma_request' THEN 'memcpy'
            ELSE coalesce(c.kind, lower(r.cat), '') END AS cat,
       s.ts, s."end" - s.ts AS dur, s."end",
       coalesce(n.depth, 0) AS depth, n.parent
FROM _spans AS s
JOIN raw AS r ON r.rowid = s.id
JOIN tracks AS t ON t.id = s.track
LEFT JOIN _categories AS c ON c.category = lower(r.cat)
LEFT JOIN _nesting AS n ON n.id = s.id
