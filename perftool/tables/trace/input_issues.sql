-- One row per kind of data loss or repair in an input.
--
-- needs: _issues, _overlapping_steps, _pairs, inputs
-- column path: VARCHAR, the file
-- column kind: VARCHAR, what happened, for example dropped events
-- column count: BIGINT, number of events, records or lines
-- column bytes: BIGINT, length of the affected text, NULL when unknown
-- column offset: BIGINT, byte offset of the first occurrence in the uncompressed input, NULL when unknown
-- column message: VARCHAR, one sentence
SELECT * FROM _issues
UNION ALL
-- Overlapping steps are known only after all steps are read.
SELECT i.path, 'overlapping steps', o.steps, NULL, NULL,
       format('profiler steps that overlap earlier ones, not counted as steps: {:,}', o.steps)
FROM _overlapping_steps AS o JOIN inputs AS i ON i.rank = o.rank AND i.kind = 'trace'
