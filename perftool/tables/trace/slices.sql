-- One row per complete event: an interval on a track. Events written as begin and end are joined to one.
--
-- needs: _spans, _nesting
-- empty without: _spans
-- drops: _spans, _nesting
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
-- column outermost: BOOLEAN, whether no slice of the same category directly around it covers it, profiler steps aside
SELECT s.id, s.rank, s.track, s.side, s.name, s.cat, s.ts, s."end" - s.ts AS dur, s."end",
       coalesce(n.depth, 0)::INTEGER AS depth, n.parent, coalesce(n.outermost = 1, true) AS outermost
FROM _spans AS s
LEFT JOIN _nesting AS n USING (id)
