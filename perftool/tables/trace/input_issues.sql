-- One row per kind of data loss or repair in an input.
--
-- needs: _issues, _overlapping_steps, _pairs, _set_aside, inputs
-- column path: VARCHAR, path of the file
-- column kind: VARCHAR, kind of loss or repair, for example dropped events
-- column count: BIGINT, number of events, records or lines
-- column bytes: BIGINT, size of the affected text, NULL when unknown
-- column offset: BIGINT, byte offset of the first occurrence in the uncompressed input, NULL when unknown
-- column message: VARCHAR, what happened, in one sentence
SELECT * FROM _issues
UNION ALL
-- Overlapping steps are known only once all steps have been read.
SELECT i.path, 'overlapping steps', o.steps, NULL, NULL,
       CASE o.steps WHEN 1 THEN '1 profiler step overlaps an earlier one, so it is' ELSE format('{:,} profiler steps overlap earlier ones, so they are', o.steps) END
       || ' not counted'
FROM _overlapping_steps AS o JOIN inputs AS i ON i.rank = o.rank AND i.kind = 'trace'
UNION ALL
SELECT i.path, 'impossible device events', s.events, NULL, NULL,
       CASE s.events WHEN 1 THEN '1 device event of impossible length was' ELSE format('{:,} device events of impossible length were', s.events) END
       || format(' set aside (the first: {} at ts {}); record again', coalesce(s.name, 'without a name'), printf('%.3f', s.at / 1000))
FROM _set_aside AS s JOIN inputs AS i ON i.rank = s.rank AND i.kind = 'trace'
